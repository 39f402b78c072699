"""The course as a static site: pages that need no network, for `make site` and `make run`.

plan      which pages there are, and what a link of the repository becomes
prose     Markdown as HTML: formulas, links, headings
formulas  TeX as MathML, and its font
colours   code in colour, CUDA strings as CUDA
cells     a notebook as HTML, by nbconvert with the template in templates/cells
kernel    the page of a kernel file
frame     what stands around each page: contents, search, previous and next, light and dark
links     links that lead nowhere
build     the whole site: `make site`
runs      the pages of `make run`
"""
