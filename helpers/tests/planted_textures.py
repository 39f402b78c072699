"""Faults of textures and surfaces planted in CUDA strings, each with its mended twin.

They are written as those of planted_memory.py.
"""

from helpers.tests import planted_memory
from helpers.tests.planted_memory import Fault

PRELUDE = r"""
cudaTextureDesc plain() {
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    return how;
}
template <class T>
cudaTextureObject_t linear_texture(torch::Tensor x) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {x.data_ptr<float>(), cudaCreateChannelDesc<T>(),
                           x.numel() * sizeof(float)};
    cudaTextureDesc how = plain();
    cudaTextureObject_t texture = 0;
    cudaCreateTextureObject(&texture, &resource, &how, nullptr);
    return texture;
}
cudaResourceDesc resource_of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}
template <class T>
cudaArray_t array_of(torch::Tensor x, int W, unsigned flags = 0) {  // its first rows of W elements
    cudaArray_t array;
    cudaChannelFormatDesc element = cudaCreateChannelDesc<T>();
    int H = x.numel() * sizeof(float) / (W * sizeof(T));
    cudaMallocArray(&array, &element, W, H, flags);
    cudaMemcpy2DToArray(array, 0, 0, x.data_ptr<float>(), W * sizeof(T), W * sizeof(T), H,
                        cudaMemcpyDeviceToDevice);
    return array;
}
cudaTextureObject_t texture_of(cudaArray_t array, cudaTextureDesc how = plain()) {
    cudaResourceDesc resource = resource_of(array);
    cudaTextureObject_t texture = 0;
    cudaCreateTextureObject(&texture, &resource, &how, nullptr);
    return texture;
}
cudaSurfaceObject_t surface_of(cudaArray_t array) {
    cudaResourceDesc resource = resource_of(array);
    cudaSurfaceObject_t surface = 0;
    cudaCreateSurfaceObject(&surface, &resource);
    return surface;
}
"""


def _linear(name, said, body, launch="<<<1, 64>>>", element="float"):
    """Return a fault in a kernel with a texture of x, x and out: 64 floats each, and i."""
    return Fault(
        name,
        said,
        f"""
__global__ void NAME_kernel(cudaTextureObject_t texture, float* x, float* out) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
{body}
}}
torch::Tensor NAME(torch::Tensor values) {{
    auto x = values.clone(), out = torch::zeros_like(x);
    cudaTextureObject_t texture = linear_texture<{element}>(x);
    NAME_kernel{launch}(texture, x.data_ptr<float>(), out.data_ptr<float>());
    cudaDestroyTextureObject(texture);
    return out;
}}""",
        (64,),
    )


def _array(name, said, body, host, element="float", where=None):
    """Return a fault in a kernel with an object and out; `host` makes and launches."""
    options = {} if where is None else {"where": where}
    return Fault(
        name,
        said,
        f"""
__global__ void NAME_kernel(cudaTextureObject_t object, float* out) {{
    int i = threadIdx.x;
{body}
}}
torch::Tensor NAME(torch::Tensor values) {{
    auto out = torch::zeros_like(values);
    cudaArray_t array = array_of<{element}>(values, 8, cudaArraySurfaceLoadStore);
{host}
    cudaFreeArray(array);
    return out;
}}""",
        (64,),
        **options,
    )


_TEXTURE = """    cudaTextureObject_t object = texture_of(array);
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());
    cudaDestroyTextureObject(object);"""
_SURFACE = _TEXTURE.replace("Texture", "Surface").replace("texture_of", "surface_of")
_HOST = r"cuda\w+ in line {line}: "

FAULTS = [
    # ---- what the same launch writes
    _linear(
        "reads_its_own_write",
        r"reads x\[0\] through a texture, but thread \(0,0,0\) has written it in line \d+ of this",
        """    x[i] = 2;
    out[i] = @x[i] ~ tex1Dfetch<float>(texture, i)@; //!""",
    ),
    _linear(
        "barrier_is_not_enough",
        r"reads x\[63\] through a texture, but thread \(63,0,0\) has written it in line",
        """    @float before = tex1Dfetch<float>(texture, 63 - i); ~ @
    __syncthreads();
    x[i] = 2;
    __syncthreads();
    @out[i] = before ~ out[i] = tex1Dfetch<float>(texture, 63 - i)@; //!""",
    ),
    _linear(
        "write_after_another_reads",
        r"writes x\[1\], read by thread \(0,0,0\) in line \d+, with no barrier between",
        """    out[i] = i < 63 ? tex1Dfetch<float>(texture, i + 1) : 0;
    @__syncthreads(); ~ @
    x[i] = 1; //!""",
    ),
    _linear(
        "other_block_writes",
        r"through a texture, but block \(0,0,0\) has written it",
        """    x[i] = 1;
    out[i] = i < 32 ? 0 : @0 ~ tex1Dfetch<float>(texture, i - 32)@; //!""",
        "<<<2, 32>>>",
    ),
    _linear(
        "byte_beside_its_write",
        r"reads x\[\d+\] through a texture, but thread \(\d+,0,0\) has written it in line",
        """    ((unsigned char*)x)[2 * i] = 7;
    out[i] = tex1Dfetch<unsigned char>(texture, 2 * i @+ 1 ~ @); //!""",
        element="unsigned char",
    ),
    # ---- surfaces
    _array(
        "surface_read_after_write",
        r"reads the CUDA array\[1\]\[0\] through a surface, but thread \(0,0,0\) has written it",
        """    float v = surf2Dread<float>(object, i * 4, 1);
    surf2Dwrite(v + 1, object, i * 4, 1);
    out[i] = @v + 1 ~ surf2Dread<float>(object, i * 4, 1)@; //!""",
        _SURFACE,
    ),
    _array(
        "surface_race",
        r"writes the CUDA array\[1\]\[0\], written by thread \(0,0,0\) in line \d+, with no",
        "    surf2Dwrite(out[i] + i, object, @i * 4 ~ 0@, 1); //!",
        _SURFACE,
    ),
    _array(
        "x_counts_elements",
        r"surf2Dread is given x = 1, which counts bytes and is no multiple of the 4",
        "    out[i] = surf2Dread<float>(object, @i * 4 ~ i@, 0); //!",
        _SURFACE,
    ),
    _array(
        "past_the_row",
        r"surf2Dwrite is given x = 32, but x counts bytes, and a row has 32 of them",
        "    surf2Dwrite(1.0f, object, (i + @0 ~ 1@) * 4, 0); //!",
        _SURFACE,
    ),
    _array(
        "past_the_rows",
        r"surf2Dread is given y = 8, but there it ends at 7",
        "    out[i] = surf2Dread<float>(object, 0, i + @0 ~ 1@); //!",
        _SURFACE,
    ),
    _array(
        "no_flag",
        r"the array was made without cudaArraySurfaceLoadStore",
        "    surf2Dwrite(1.0f, object, i * 4, 0);",
        """    cudaArray_t other = array_of<float>(values, 8, @cudaArraySurfaceLoadStore ~ 0@);
    cudaResourceDesc resource = resource_of(other);
    cudaSurfaceObject_t object;
    cudaCreateSurfaceObject(&object, &resource); //!
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());
    cudaFreeArray(other);""",
        where=_HOST,
    ),
    # ---- what nobody has written
    _array(
        "unwritten_array",
        r"reads the CUDA array\[4\]\[0\], to which nothing has been written",
        "    out[i] = tex2D<float>(object, i, @3 ~ 4@); //!",
        """    cudaArray_t half;
    cudaChannelFormatDesc element = cudaCreateChannelDesc<float>();
    cudaMallocArray(&half, &element, 8, 8);
    cudaMemcpy2DToArray(half, 0, 0, values.data_ptr<float>(), 32, 32, 4, cudaMemcpyDeviceToDevice);
    cudaTextureObject_t object = texture_of(half);
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());
    cudaFreeArray(half);""",
    ),
    _array(
        "unwritten_bytes",
        r"reads the CUDA array\[0\]\[0\], to which nothing has been written",
        "    out[i] = tex2D<uchar4>(object, i, 0).x; //!",
        """    cudaArray_t bytes;
    cudaChannelFormatDesc element = cudaCreateChannelDesc<uchar4>();
    cudaMallocArray(&bytes, &element, 8, 8);
    @cudaMemcpyToArray(bytes, 0, 0, values.data_ptr<float>(), 256, cudaMemcpyDeviceToDevice); ~ @
    cudaTextureObject_t object = texture_of(bytes);
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());
    cudaFreeArray(bytes);""",
    ),
    # ---- objects
    _array(
        "texture_destroyed",
        r"tex2D is given a texture object that has been destroyed",
        "    out[i] = tex2D<float>(object, i, 0); //!",
        """    cudaTextureObject_t object = texture_of(array);
    @ ~ cudaDestroyTextureObject(object);@
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());""",
    ),
    _array(
        "array_freed",
        r"tex2D is given an object of an array that has been freed",
        "    out[i] = tex2D<float>(object, i, 0); //!",
        """    cudaArray_t other = array_of<float>(values, 8);
    cudaTextureObject_t object = texture_of(other);
    @ ~ cudaFreeArray(other);@
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());""",
    ),
    _array(
        "no_object",
        r"tex2D is given 0, which is no object that was created",
        "    out[i] = tex2D<float>(object, i, 0); //!",
        """    cudaTextureObject_t object = @texture_of(array) ~ 0@;
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());""",
    ),
    _array(
        "surface_for_texture",
        r"tex2D is given a surface object; it takes a texture object",
        "    out[i] = tex2D<float>(object, i, 0); //!",
        """    cudaTextureObject_t object = @texture_of ~ surface_of@(array);
    NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>());""",
    ),
    _array(
        "freed_twice",
        r"is given an array that has been freed",
        "    out[i] = 0;",
        """    cudaArray_t other = array_of<float>(values, 8);
    cudaFreeArray(other);
    @ ~ cudaFreeArray(other);@ //!""",
        where=_HOST,
    ),
    # ---- types and shapes
    _array(
        "floats_of_bytes",
        r"tex2D reads floats, but an element of the texture is 4 unsigned numbers of 8 bits",
        "    out[i] = @tex2D<uchar4>(object, i, 0).w ~ tex2D<float>(object, i, 0)@; //!",
        _TEXTURE,
        "uchar4",
    ),
    _array(
        "integers_of_floats",
        r"tex2D reads integers, but an element of the texture is 1 floating-point number of 32",
        "    out[i] = tex2D<@float ~ int@>(object, i, 0); //!",
        _TEXTURE,
    ),
    _array(
        "floats_of_integers",
        r"tex2D reads floats, but an element of the texture is 1 signed number of 32 bits\.$",
        "    out[i] = tex2D<@int ~ float@>(object, i, 0); //!",
        _TEXTURE,
        "int",
    ),
    _array(
        "bytes_of_fractions",
        r"tex2D reads integers, but cudaReadModeNormalizedFloat gives floats",
        "    out[i] = tex2D<@float4 ~ uchar4@>(object, i, 0).x; //!",
        """    cudaTextureDesc how = plain();
    how.readMode = cudaReadModeNormalizedFloat;
    NAME_kernel<<<1, 8>>>(texture_of(array, how), out.data_ptr<float>());""",
        "uchar4",
    ),
    _array(
        "called_by_the_host",
        r"^tex2D is a function of kernels: the host cannot call it",
        "    out[i] = tex2D<float>(object, i, 0);",
        """    cudaTextureObject_t object = texture_of(array);
    float value = 0;
    @NAME_kernel<<<1, 8>>>(object, out.data_ptr<float>()) ~ tex2D(&value, object, 1.f, 2.f)@; //!
    out.fill_(value);""",
        where="",
    ),
    _array(
        "four_of_two",
        r"tex2D reads 4 numbers, but an element of the texture is 2 floating-point numbers",
        "    out[i] = tex2D<@float2 ~ float4@>(object, i, 0).x; //!",
        _TEXTURE,
        "float2",
    ),
    _array(
        "other_shape",
        r"tex3D is for an array of three dimensions, but the texture is one of two .*: tex2D\.",
        "    out[i] = @tex2D<float>(object, i, 0) ~ tex3D<float>(object, i, 0, 0)@; //!",
        _TEXTURE,
    ),
    _array(
        "fetch_of_an_array",
        r"tex1Dfetch is for linear memory, but the texture is one of two dimensions: tex2D",
        "    out[i] = @tex2D<float>(object, i, 0) ~ tex1Dfetch<float>(object, i)@; //!",
        _TEXTURE,
    ),
    _array(
        "gather_without_flag",
        r"tex2Dgather is for an array that was made with cudaArrayTextureGather",
        "    out[i] = tex2Dgather<float4>(object, i, 1).x; //!",
        """    cudaArray_t other = array_of<float>(values, 8, @cudaArrayTextureGather ~ 0@);
    NAME_kernel<<<1, 8>>>(texture_of(other), out.data_ptr<float>());
    cudaFreeArray(other);""",
    ),
    # ---- what the host asks for
    _array(
        "misaligned",
        r"begins at byte 4 of its memory, which is no multiple of 512",
        "    out[i] = 0;",
        """    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {values.data_ptr<float>() + @0 ~ 1@, cudaCreateChannelDesc<float>(), 64};
    cudaTextureDesc how = plain();
    cudaTextureObject_t object;
    cudaCreateTextureObject(&object, &resource, &how, nullptr); //!""",
        where=_HOST,
    ),
    _array(
        "too_long",
        r"260 bytes from byte 0 of a tensor of 256 bytes on: they do not lie in it",
        "    out[i] = 0;",
        """    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {values.data_ptr<float>(), cudaCreateChannelDesc<float>(), @256 ~ 260@};
    cudaTextureDesc how = plain();
    cudaTextureObject_t object;
    cudaCreateTextureObject(&object, &resource, &how, nullptr); //!""",
        where=_HOST,
    ),
    _array(
        "host_memory",
        r"is given a pointer to no memory of the device",
        "    out[i] = 0;",
        """    float host[64];
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {@values.data_ptr<float>() ~ host@, cudaCreateChannelDesc<float>(), 256};
    cudaTextureDesc how = plain();
    cudaTextureObject_t object;
    cudaCreateTextureObject(&object, &resource, &how, nullptr); //!""",
        where=_HOST,
    ),
    _array(
        "bad_pitch",
        r"a pitch of 40 bytes: it takes a multiple of 32 \(texturePitchAlignment\), and 32 at",
        "    out[i] = 0;",
        """    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D = {values.data_ptr<float>(), cudaCreateChannelDesc<float>(), 8, 4,
                            @64 ~ 40@};
    cudaTextureDesc how = plain();
    cudaTextureObject_t object;
    cudaCreateTextureObject(&object, &resource, &how, nullptr); //!""",
        where=_HOST,
    ),
    _array(
        "filtered_integers",
        r"linear filtering gives floats, but an element is 4 unsigned numbers of 8 bits, and not",
        "    out[i] = 0;",
        """    cudaResourceDesc resource = resource_of(array);
    cudaTextureDesc how = plain();
    how.filterMode = cudaFilterModeLinear;
    @how.readMode = cudaReadModeNormalizedFloat; ~ @
    cudaTextureObject_t object;
    cudaCreateTextureObject(&object, &resource, &how, nullptr); //!""",
        "uchar4",
        where=_HOST,
    ),
    _array(
        "three_numbers",
        r"an element of 3 numbers: textures and surfaces have 1, 2 or 4",
        "    out[i] = 0;",
        """    cudaChannelFormatDesc element = cudaCreateChannelDesc(8, 8, 8, @8 ~ 0@,
                                                          cudaChannelFormatKindUnsigned);
    cudaArray_t other;
    cudaMallocArray(&other, &element, 8, 8); //!
    cudaFreeArray(other);""",
        where=_HOST,
    ),
    _array(
        "a_type_of_no_texture",
        r"the cudaChannelFormatDesc describes no element",
        "    out[i] = 0;",
        """    cudaChannelFormatDesc element = cudaCreateChannelDesc<@float4 ~ float3@>();
    cudaArray_t other;
    cudaMallocArray(&other, &element, 8, 8); //!
    cudaFreeArray(other);""",
        where=_HOST,
    ),
    _array(
        "garbage_in_flags",
        r"the flags of a cudaResourceDesc are 0",
        "    out[i] = 0;",
        """    cudaResourceDesc resource = resource_of(array);
    @ ~ resource.flags = 7;@
    cudaTextureDesc how = plain();
    cudaTextureObject_t object;
    cudaCreateTextureObject(&object, &resource, &how, nullptr); //!""",
        where=_HOST,
    ),
    # ---- copies
    _array(
        "copy_past_the_array",
        r"36 x 8 x 1 bytes, rows and planes from 0, 0, 0 on do not lie in an array of 32 x 8 x 1",
        "    out[i] = 0;",
        """    float host[8 * 9] = {};
    cudaMemcpy2DToArray(array, 0, 0, host, 36, @32 ~ 36@, 8, cudaMemcpyHostToDevice); //!""",
        where=_HOST,
    ),
    _array(
        "copy_the_wrong_way",
        r"an array lies on the device, but its direction says on the host",
        "    out[i] = 0;",
        """    float host[64] = {};
    auto kind = @cudaMemcpyHostToDevice ~ cudaMemcpyDeviceToHost@;
    cudaMemcpy2DToArray(array, 0, 0, host, 32, 32, 8, kind); //!""",
        where=_HOST,
    ),
    _array(
        "copy_past_the_host",
        r"reads 256 bytes of an array of the host that ends after 128 bytes",
        "    out[i] = 0;",
        """    float host[@64 ~ 32@] = {};
    cudaMemcpyToArray(array, 0, 0, host, 256, cudaMemcpyHostToDevice); //!""",
        where=r"cudaMemcpyToArray in line {line} ",
    ),
]


def source() -> tuple[str, dict[str, int]]:
    """Return one CUDA string with all of them, NAME_bad and NAME_good, and the lines of errors."""
    text, lines = planted_memory.source(FAULTS)
    before = PRELUDE.count("\n")
    return PRELUDE + text, {name: line + before for name, line in lines.items()}
