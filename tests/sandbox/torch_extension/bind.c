/* The module: what the kernel's half tells. */
#include <Python.h>

int torch_extension_devices(void);

static PyObject *devices(PyObject *self, PyObject *nothing)
{
    (void)self;
    (void)nothing;
    return PyLong_FromLong(torch_extension_devices());
}

static PyMethodDef methods[] = {
    {"devices", devices, METH_NOARGS, "CUDA devices, or minus the error."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "torch_extension", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_torch_extension(void)
{
    return PyModule_Create(&module);
}
