// A module of Python's that the kernels are linked into; it says how many there are.
#include <Python.h>

#ifndef KERNELS
#error "setup.py says how many"
#endif

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "flash_kernels", nullptr, -1, nullptr,
                             nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_flash_kernels() {
  PyObject *made = PyModule_Create(&module);
  if (made && PyModule_AddIntConstant(made, "kernels", KERNELS) < 0) Py_CLEAR(made);
  return made;
}
