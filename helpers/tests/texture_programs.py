"""Whole programs with textures, written as the samples of image processing write them.

Each prints what it has computed, a number a line; EXPECTED computes the same with numpy in double
precision, with the weights of linear filtering as they are: in steps of 1/256.
"""

import numpy as np

_CHECK = r"""#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
#define checkCudaErrors(call)                                                            \
    do {                                                                                 \
        cudaError_t error = (call);                                                      \
        if (error != cudaSuccess) {                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
            exit(EXIT_FAILURE);                                                          \
        }                                                                                \
    } while (0)
"""

# An image of bytes, turned about its middle; the texture repeats it.
ROTATE = (
    _CHECK
    + r"""
__global__ void transformKernel(float* output, int width, int height, float theta,
                                cudaTextureObject_t tex) {
    unsigned int x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float u = (x + 0.5f) / width - 0.5f, v = (y + 0.5f) / height - 0.5f;
    float tu = u * cosf(theta) - v * sinf(theta) + 0.5f;
    float tv = v * cosf(theta) + u * sinf(theta) + 0.5f;
    output[y * width + x] = tex2D<float>(tex, tu, tv);
}
int main() {
    const int width = 61, height = 37;
    std::vector<unsigned char> image(width * height);
    for (int i = 0; i < width * height; i++) image[i] = (i * 37 + i / 7 * 11) % 256;
    cudaChannelFormatDesc channelDesc =
        cudaCreateChannelDesc(8, 0, 0, 0, cudaChannelFormatKindUnsigned);
    cudaArray* cuArray;
    checkCudaErrors(cudaMallocArray(&cuArray, &channelDesc, width, height));
    checkCudaErrors(cudaMemcpyToArray(cuArray, 0, 0, image.data(), image.size(),
                                      cudaMemcpyHostToDevice));
    cudaTextureObject_t tex;
    cudaResourceDesc texRes;
    memset(&texRes, 0, sizeof(cudaResourceDesc));
    texRes.resType = cudaResourceTypeArray;
    texRes.res.array.array = cuArray;
    cudaTextureDesc texDescr;
    memset(&texDescr, 0, sizeof(cudaTextureDesc));
    texDescr.normalizedCoords = true;
    texDescr.filterMode = cudaFilterModeLinear;
    texDescr.addressMode[0] = cudaAddressModeWrap;
    texDescr.addressMode[1] = cudaAddressModeWrap;
    texDescr.readMode = cudaReadModeNormalizedFloat;
    checkCudaErrors(cudaCreateTextureObject(&tex, &texRes, &texDescr, NULL));
    float* dData = NULL;
    checkCudaErrors(cudaMalloc((void**)&dData, width * height * sizeof(float)));
    dim3 dimBlock(8, 8, 1);
    dim3 dimGrid((width + 7) / dimBlock.x, (height + 7) / dimBlock.y, 1);
    transformKernel<<<dimGrid, dimBlock, 0>>>(dData, width, height, 0.5f, tex);
    checkCudaErrors(cudaGetLastError());
    checkCudaErrors(cudaDeviceSynchronize());
    std::vector<float> out(width * height);
    checkCudaErrors(cudaMemcpy(out.data(), dData, out.size() * sizeof(float),
                               cudaMemcpyDeviceToHost));
    for (float v : out) printf("%.9g\n", v);
    checkCudaErrors(cudaDestroyTextureObject(tex));
    checkCudaErrors(cudaFree(dData));
    checkCudaErrors(cudaFreeArray(cuArray));
    return 0;
}
"""
)

# Heat: a kernel reads one array through a texture and writes the other through a surface.
HEAT = (
    _CHECK
    + r"""
struct Field {
    cudaArray_t array;
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
    Field(int w, int h) {
        cudaChannelFormatDesc desc = cudaCreateChannelDesc<float>();
        checkCudaErrors(cudaMallocArray(&array, &desc, w, h, cudaArraySurfaceLoadStore));
        cudaResourceDesc res = {};
        res.resType = cudaResourceTypeArray;
        res.res.array.array = array;
        checkCudaErrors(cudaCreateSurfaceObject(&surface, &res));
        cudaTextureDesc tex = {};
        tex.addressMode[0] = tex.addressMode[1] = cudaAddressModeClamp;
        checkCudaErrors(cudaCreateTextureObject(&texture, &res, &tex, nullptr));
    }
    ~Field() {
        cudaDestroyTextureObject(texture);
        cudaDestroySurfaceObject(surface);
        cudaFreeArray(array);
    }
};
__global__ void init(cudaSurfaceObject_t out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) surf2Dwrite<float>((x * 7 + y * 13) % 32, out, x * sizeof(float), y);
}
__global__ void step(cudaTextureObject_t in, cudaSurfaceObject_t out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float c = tex2D<float>(in, x, y);
    float around = tex2D<float>(in, x - 1, y) + tex2D<float>(in, x + 1, y) +
                   tex2D<float>(in, x, y - 1) + tex2D<float>(in, x, y + 1);
    surf2Dwrite(c + 0.125f * (around - 4 * c), out, x * (int)sizeof(float), y);
}
int main() {
    const int w = 45, h = 23;
    {
        Field a(w, h), b(w, h);
        dim3 block(16, 16), grid((w + 15) / 16, (h + 15) / 16);
        init<<<grid, block>>>(a.surface, w, h);
        for (int i = 0; i < 10; i++) {
            step<<<grid, block>>>(a.texture, b.surface, w, h);
            step<<<grid, block>>>(b.texture, a.surface, w, h);
        }
        std::vector<float> out(w * h);
        checkCudaErrors(cudaMemcpy2DFromArray(out.data(), w * sizeof(float), a.array, 0, 0,
                                              w * sizeof(float), h, cudaMemcpyDeviceToHost));
        for (float v : out) printf("%.9g\n", v);
    }
    checkCudaErrors(cudaDeviceReset());
}
"""
)

# Rays through a volume: each place is looked up in the volume, its value in a table of colours.
VOLUME = (
    _CHECK
    + r"""
typedef unsigned char uchar;
__global__ void render(float4* out, int w, int h, cudaTextureObject_t volume,
                       cudaTextureObject_t transfer, int steps) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = 0; i < steps; i++) {
        float sample = tex3D<float>(volume, (x + 0.5f) / w, (y + 0.5f) / h, (i + 0.5f) / steps);
        float4 color = tex1D<float4>(transfer, sample);
        sum.x += color.x * color.w, sum.y += color.y * color.w, sum.z += color.z * color.w;
        sum.w += color.w;
    }
    out[y * w + x] = sum;
}
int main() {
    const int W = 13, H = 11, D = 9, w = 16, h = 10, steps = 12;
    std::vector<uchar> volume(W * H * D);
    for (int i = 0; i < W * H * D; i++) volume[i] = (i * 29 + i / 13 * 5) % 256;
    cudaExtent volumeSize = make_cudaExtent(W, H, D);
    cudaChannelFormatDesc channelDesc = cudaCreateChannelDesc<uchar>();
    cudaArray* d_volumeArray = 0;
    checkCudaErrors(cudaMalloc3DArray(&d_volumeArray, &channelDesc, volumeSize));
    cudaMemcpy3DParms copyParams = {0};
    copyParams.srcPtr = make_cudaPitchedPtr(volume.data(), volumeSize.width * sizeof(uchar),
                                            volumeSize.width, volumeSize.height);
    copyParams.dstArray = d_volumeArray;
    copyParams.extent = volumeSize;
    copyParams.kind = cudaMemcpyHostToDevice;
    checkCudaErrors(cudaMemcpy3D(&copyParams));
    cudaResourceDesc texRes;
    memset(&texRes, 0, sizeof(cudaResourceDesc));
    texRes.resType = cudaResourceTypeArray;
    texRes.res.array.array = d_volumeArray;
    cudaTextureDesc texDescr;
    memset(&texDescr, 0, sizeof(cudaTextureDesc));
    texDescr.normalizedCoords = true;
    texDescr.filterMode = cudaFilterModeLinear;
    texDescr.addressMode[0] = texDescr.addressMode[1] = texDescr.addressMode[2] =
        cudaAddressModeMirror;
    texDescr.readMode = cudaReadModeNormalizedFloat;
    cudaTextureObject_t texObject, transferTex;
    checkCudaErrors(cudaCreateTextureObject(&texObject, &texRes, &texDescr, NULL));
    float4 transferFunc[] = {{0, 0, 0, 0}, {1, 0, 0, 0.25f}, {1, 0.5f, 0, 0.5f}, {0, 1, 1, 1}};
    cudaChannelFormatDesc channelDesc2 = cudaCreateChannelDesc<float4>();
    cudaArray* d_transferFuncArray;
    checkCudaErrors(cudaMallocArray(&d_transferFuncArray, &channelDesc2, 4, 1));
    checkCudaErrors(cudaMemcpy2DToArray(d_transferFuncArray, 0, 0, transferFunc, 0,
                                        sizeof(transferFunc), 1, cudaMemcpyHostToDevice));
    texRes.res.array.array = d_transferFuncArray;
    texDescr.addressMode[0] = cudaAddressModeClamp;
    texDescr.readMode = cudaReadModeElementType;
    checkCudaErrors(cudaCreateTextureObject(&transferTex, &texRes, &texDescr, NULL));
    float4* d_output;
    checkCudaErrors(cudaMallocManaged(&d_output, w * h * sizeof(float4)));
    render<<<dim3((w + 7) / 8, (h + 7) / 8), dim3(8, 8)>>>(d_output, w, h, texObject, transferTex,
                                                           steps);
    checkCudaErrors(cudaDeviceSynchronize());
    for (int i = 0; i < w * h; i++)
        printf("%.9g\n%.9g\n%.9g\n%.9g\n", d_output[i].x, d_output[i].y, d_output[i].z,
               d_output[i].w);
    cudaFree(d_output);
}
"""
)

# Sobel's edges of an image in rows with a pitch, halved in size by a filtered read.
SOBEL = (
    _CHECK
    + r"""
__device__ int at(cudaTextureObject_t tex, int x, int y) { return tex2D<unsigned char>(tex, x, y); }
__global__ void sobel(cudaTextureObject_t tex, int* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int gx = at(tex, x + 1, y - 1) + 2 * at(tex, x + 1, y) + at(tex, x + 1, y + 1) -
             at(tex, x - 1, y - 1) - 2 * at(tex, x - 1, y) - at(tex, x - 1, y + 1);
    int gy = at(tex, x - 1, y + 1) + 2 * at(tex, x, y + 1) + at(tex, x + 1, y + 1) -
             at(tex, x - 1, y - 1) - 2 * at(tex, x, y - 1) - at(tex, x + 1, y - 1);
    out[y * w + x] = abs(gx) + abs(gy);
}
__global__ void half(cudaTextureObject_t tex, float* out, int w, int h) {
    for (int i = threadIdx.x; i < w * h; i += blockDim.x)
        out[i] = 255.f * tex2D<float>(tex, 2.f * (i % w) + 1.f, 2.f * (i / w) + 1.f);
}
int main() {
    const int w = 54, h = 28;
    std::vector<unsigned char> image(w * h);
    for (int i = 0; i < w * h; i++) image[i] = (i * 31 + i / w * 17) % 256;
    unsigned char* d_image;
    size_t pitch;
    checkCudaErrors(cudaMallocPitch(&d_image, &pitch, w, h));
    checkCudaErrors(cudaMemcpy2D(d_image, pitch, image.data(), w, w, h, cudaMemcpyHostToDevice));
    cudaResourceDesc res = {};
    res.resType = cudaResourceTypePitch2D;
    res.res.pitch2D.devPtr = d_image;
    res.res.pitch2D.desc = cudaCreateChannelDesc<unsigned char>();
    res.res.pitch2D.width = w;
    res.res.pitch2D.height = h;
    res.res.pitch2D.pitchInBytes = pitch;
    cudaTextureDesc desc = {};
    desc.addressMode[0] = desc.addressMode[1] = cudaAddressModeClamp;
    cudaTextureObject_t points, filtered;
    checkCudaErrors(cudaCreateTextureObject(&points, &res, &desc, nullptr));
    desc.filterMode = cudaFilterModeLinear;
    desc.readMode = cudaReadModeNormalizedFloat;
    checkCudaErrors(cudaCreateTextureObject(&filtered, &res, &desc, nullptr));
    int* edges;
    float* halved;
    checkCudaErrors(cudaMallocManaged(&edges, w * h * sizeof(int)));
    checkCudaErrors(cudaMallocManaged(&halved, w * h / 4 * sizeof(float)));
    sobel<<<dim3((w + 15) / 16, (h + 15) / 16), dim3(16, 16)>>>(points, edges, w, h);
    half<<<1, 256>>>(filtered, halved, w / 2, h / 2);
    checkCudaErrors(cudaDeviceSynchronize());
    for (int i = 0; i < w * h; i++) printf("%d\n", edges[i]);
    for (int i = 0; i < w * h / 4; i++) printf("%.9g\n", halved[i]);
    cudaDestroyTextureObject(points);
    cudaDestroyTextureObject(filtered);
    cudaFree(edges), cudaFree(halved), cudaFree(d_image);
}
"""
)


def _mix(elements: np.ndarray, *places: np.ndarray, wrap=(), mirror=()) -> np.ndarray:
    """Return elements (..., y, x, C) filtered at places x, y, ..., counted in elements."""
    out = 0.0
    for corner in range(2 ** len(places)):
        index, weight = [], 1.0
        for axis, place in enumerate(places):
            size = elements.shape[len(places) - 1 - axis]
            first = np.floor(place - 0.5)
            step = np.floor((place - 0.5 - first) * 256 + 0.5) / 256
            i = first.astype(int) + (corner >> axis & 1)
            weight = weight * (step if corner >> axis & 1 else 1 - step)
            if axis in wrap:
                i = i % size
            elif axis in mirror:
                i = np.where(i % (2 * size) < size, i % (2 * size), 2 * size - 1 - i % (2 * size))
            index.insert(0, np.clip(i, 0, size - 1))
        out = out + weight[..., None] * elements[tuple(index)]
    return out


def _rotated() -> np.ndarray:
    w, h = 61, 37
    i = np.arange(w * h)
    image = ((i * 37 + i // 7 * 11) % 256).reshape(h, w, 1) / 255
    y, x = np.mgrid[:h, :w].astype(np.float32)
    half = np.float32(0.5)
    u, v = (x + half) / np.float32(w) - half, (y + half) / np.float32(h) - half
    cos, sin = np.float32(np.cos(half)), np.float32(np.sin(half))
    tu, tv = u * cos - v * sin + half, v * cos + u * sin + half
    return _mix(image, tu.astype(float) * w, tv.astype(float) * h, wrap=(0, 1)).ravel()


def _heat() -> np.ndarray:
    y, x = np.mgrid[:23, :45]
    field = ((x * 7 + y * 13) % 32).astype(float)
    for _ in range(20):
        wide = np.pad(field, 1, mode="edge")
        around = wide[1:-1, :-2] + wide[1:-1, 2:] + wide[:-2, 1:-1] + wide[2:, 1:-1]
        field = field + 0.125 * (around - 4 * field)
    return field.ravel()


def _rendered() -> np.ndarray:
    W, H, D, w, h, steps = 13, 11, 9, 16, 10, 12
    i = np.arange(W * H * D)
    volume = ((i * 29 + i // 13 * 5) % 256).reshape(D, H, W, 1) / 255
    z, y, x = np.mgrid[:steps, :h, :w] + 0.5
    table = np.array([[0, 0, 0, 0], [1, 0, 0, 0.25], [1, 0.5, 0, 0.5], [0, 1, 1, 1]])
    sample = _mix(volume, x / w * W, y / h * H, z / steps * D, mirror=(0, 1, 2))[..., 0]
    color = _mix(table, sample * 4)
    return np.concatenate([color[..., :3] * color[..., 3:], color[..., 3:]], -1).sum(0).ravel()


def _edges() -> np.ndarray:
    w, h = 54, 28
    i = np.arange(w * h)
    image = ((i * 31 + i // w * 17) % 256).reshape(h, w).astype(float)
    wide = np.pad(image, 1, mode="edge")
    up, low = wide[:-2], wide[2:]
    gx = up[:, 2:] + 2 * wide[1:-1, 2:] + low[:, 2:]
    gx = gx - up[:, :-2] - 2 * wide[1:-1, :-2] - low[:, :-2]
    gy = low[:, :-2] + 2 * low[:, 1:-1] + low[:, 2:] - up[:, :-2] - 2 * up[:, 1:-1] - up[:, 2:]
    halved = image.reshape(h // 2, 2, w // 2, 2).mean((1, 3))
    return np.concatenate([(abs(gx) + abs(gy)).ravel(), halved.ravel()])


# name -> (program, what it has to print, how far it may be off: a step of a weight and more)
PROGRAMS = {
    "rotate": (ROTATE, _rotated, 1 / 128),
    "heat": (HEAT, _heat, 1e-4),
    "volume": (VOLUME, _rendered, 0.05),
    "sobel": (SOBEL, _edges, 1e-4),
}
