// A module of Python's that the kernels are linked into.
#include <Python.h>

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "flash_shards", nullptr, -1, nullptr,
                             nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_flash_shards() { return PyModule_Create(&module); }
