/* smoke_attention._core: host buffers in, host buffer out. Plain C, needs neither torch nor numpy.
 *
 * cudart is asked for the text of an error only once a device has been counted: without a driver some
 * builds of it crash on that question instead of answering it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cuda_runtime_api.h>
#include <limits.h>
#include <string.h>

#include "attention.h"

enum { Q, K, V, OUT, TENSORS };
static const char *const NAMES[TENSORS] = {"q", "k", "v", "out"};

typedef struct {
    Py_buffer host[TENSORS];
    attention_problem problem;
    int (*launch)(const attention_problem *);
    int warmup, repeats; /* repeats == 0: run once, not timed */
} job;

typedef struct {
    cudaError_t error;
    const char *doing;
    float milliseconds;
} outcome;

/* ---- the work: no Python in here, it runs without the GIL ------------------------------------- */

static void timed(const job *j, outcome *o)
{
    cudaEvent_t start = NULL, stop = NULL;
    int i;
    o->doing = "time the kernel";
    for (i = 0; i < j->warmup && o->error == cudaSuccess; i++)
        o->error = (cudaError_t)j->launch(&j->problem);
    if (o->error == cudaSuccess) o->error = cudaEventCreate(&start);
    if (o->error == cudaSuccess) o->error = cudaEventCreate(&stop);
    if (o->error == cudaSuccess) o->error = cudaEventRecord(start, 0);
    for (i = 0; i < j->repeats && o->error == cudaSuccess; i++)
        o->error = (cudaError_t)j->launch(&j->problem);
    if (o->error == cudaSuccess) o->error = cudaEventRecord(stop, 0);
    if (o->error == cudaSuccess) o->error = cudaEventSynchronize(stop);
    if (o->error == cudaSuccess) o->error = cudaEventElapsedTime(&o->milliseconds, start, stop);
    if (start) cudaEventDestroy(start);
    if (stop) cudaEventDestroy(stop);
    o->milliseconds /= (float)j->repeats;
}

static outcome run(job *j)
{
    outcome o = {cudaSuccess, "", 0.f};
    void *device[TENSORS] = {NULL, NULL, NULL, NULL};
    int i;
    cudaGetLastError(); /* a failed call of somebody else's must not look like a failed launch of ours */
    for (i = 0; i < TENSORS && o.error == cudaSuccess; i++) {
        o.doing = "allocate device memory";
        o.error = cudaMalloc(&device[i], (size_t)j->host[i].len);
        if (o.error == cudaSuccess && i != OUT) {
            o.doing = "copy to the device";
            o.error = cudaMemcpy(device[i], j->host[i].buf, (size_t)j->host[i].len,
                                 cudaMemcpyHostToDevice);
        }
    }
    if (o.error == cudaSuccess) {
        j->problem.q = device[Q];
        j->problem.k = device[K];
        j->problem.v = device[V];
        j->problem.out = device[OUT];
        if (j->repeats) {
            timed(j, &o);
        } else {
            o.doing = "launch the kernel";
            o.error = (cudaError_t)j->launch(&j->problem);
        }
    }
    if (o.error == cudaSuccess) {
        o.doing = "run the kernel";
        o.error = cudaDeviceSynchronize();
    }
    if (o.error == cudaSuccess) {
        o.doing = "copy from the device";
        o.error =
            cudaMemcpy(j->host[OUT].buf, device[OUT], (size_t)j->host[OUT].len, cudaMemcpyDeviceToHost);
    }
    for (i = 0; i < TENSORS; i++)
        if (device[i]) cudaFree(device[i]);
    return o;
}

/* ---- arguments -------------------------------------------------------------------------------- */

static int positive(const char *name, int value)
{
    if (value >= 1) return 1;
    PyErr_Format(PyExc_ValueError, "%s must be at least 1, got %d", name, value);
    return 0;
}

/* The bytes of a (batch_heads, seqlen, head_dim) tensor, or -1 with a ValueError. */
static Py_ssize_t tensor_bytes(int batch_heads, int seqlen, int head_dim, int itemsize)
{
    Py_ssize_t row = (Py_ssize_t)head_dim * itemsize;
    if (seqlen > PY_SSIZE_T_MAX / row || batch_heads > PY_SSIZE_T_MAX / (row * seqlen)) {
        PyErr_SetString(PyExc_ValueError, "the tensors are larger than memory can be");
        return -1;
    }
    return row * seqlen * batch_heads;
}

static int check(job *j, int batch, int heads, const char *dtype, int itemsize)
{
    const attention_problem *p = &j->problem;
    int i;
    if (!positive("batch", batch) || !positive("heads", heads) || !positive("seqlen_q", p->seqlen_q) ||
        !positive("seqlen_k", p->seqlen_k))
        return 0;
    if (!itemsize) {
        PyErr_Format(PyExc_ValueError, "dtype must be 'float32' or 'float16', got '%s'", dtype);
        return 0;
    }
    if (p->head_dim != 32 && p->head_dim != 64 && p->head_dim != 96 && p->head_dim != 128) {
        PyErr_Format(PyExc_ValueError, "head_dim must be 32, 64, 96 or 128, got %d", p->head_dim);
        return 0;
    }
    if (batch > INT_MAX / heads || p->seqlen_q > INT_MAX - 64 || p->seqlen_k > INT_MAX - 64) {
        PyErr_SetString(PyExc_ValueError, "batch * heads, seqlen_q and seqlen_k must stay below 2**31 - 64");
        return 0;
    }
    if (!(p->scale - p->scale == 0.f)) { /* inf and NaN, without <math.h> */
        PyErr_SetString(PyExc_ValueError, "scale must be finite");
        return 0;
    }
    for (i = 0; i < TENSORS; i++) {
        int seqlen = i == Q || i == OUT ? p->seqlen_q : p->seqlen_k;
        Py_ssize_t expected = tensor_bytes(batch * heads, seqlen, p->head_dim, itemsize);
        if (expected < 0) return 0;
        if (j->host[i].len != expected) {
            PyErr_Format(PyExc_ValueError,
                         "%s must hold %zd bytes (batch %d x heads %d x seqlen %d x head_dim %d x %d), "
                         "got %zd",
                         NAMES[i], expected, batch, heads, seqlen, p->head_dim, itemsize, j->host[i].len);
            return 0;
        }
    }
    if (j->repeats < 0 || j->warmup < 0) {
        PyErr_SetString(PyExc_ValueError, "repeats must be at least 1 and warmup at least 0");
        return 0;
    }
    return 1;
}

static int device_present(void)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaSuccess && n > 0) return 1;
    PyErr_Format(PyExc_RuntimeError, "no CUDA device (cudaGetDeviceCount returned %d, %d devices)",
                 (int)error, error == cudaSuccess ? n : 0);
    return 0;
}

static PyObject *cuda_failure(const char *doing, cudaError_t error)
{
    cudaGetLastError(); /* it is reported here: leave nothing behind for whoever asks next */
    return PyErr_Format(PyExc_RuntimeError, "could not %s: %s (CUDA error %d)", doing,
                        cudaGetErrorString(error), (int)error);
}

/* Validates the job and runs it; the caller releases the buffers. */
static int perform(job *j, int batch, int heads, const char *dtype, outcome *o)
{
    int fp32 = strcmp(dtype, "float32") == 0, fp16 = strcmp(dtype, "float16") == 0;
    int wide = j->problem.head_dim > 64;
    if (!check(j, batch, heads, dtype, fp32 ? 4 : fp16 ? 2 : 0) || !device_present()) return 0;
    j->problem.batch_heads = batch * heads;
    j->launch = fp32 ? (wide ? attention_fp32_wide : attention_fp32_narrow)
                     : (wide ? attention_fp16_wide : attention_fp16_narrow);
    Py_BEGIN_ALLOW_THREADS
    *o = run(j);
    Py_END_ALLOW_THREADS
    if (o->error == cudaSuccess) return 1;
    cuda_failure(o->doing, o->error);
    return 0;
}

/* ---- functions -------------------------------------------------------------------------------- */

static PyObject *attend(PyObject *args, PyObject *keywords, int is_timed)
{
    static char *names[] = {"q", "k", "v", "out", "batch", "heads", "seqlen_q", "seqlen_k", "head_dim",
                            "dtype", "causal", "scale", "warmup", "repeats", NULL};
    static char *plain[] = {"q", "k", "v", "out", "batch", "heads", "seqlen_q", "seqlen_k", "head_dim",
                            "dtype", "causal", "scale", NULL};
    job j;
    outcome o = {cudaSuccess, "", 0.f};
    int batch, heads, ok, i;
    const char *dtype;
    attention_problem *p = &j.problem;
    memset(&j, 0, sizeof j);
    if (is_timed) {
        j.warmup = 3;
        j.repeats = 20;
        ok = PyArg_ParseTupleAndKeywords(args, keywords, "y*y*y*w*iiiiispf|ii:time_forward", names,
                                         &j.host[Q], &j.host[K], &j.host[V], &j.host[OUT], &batch, &heads,
                                         &p->seqlen_q, &p->seqlen_k, &p->head_dim, &dtype, &p->causal,
                                         &p->scale, &j.warmup, &j.repeats);
        if (j.repeats == 0) j.repeats = -1; /* 0 means "not timed" to run() */
    } else {
        ok = PyArg_ParseTupleAndKeywords(args, keywords, "y*y*y*w*iiiiispf:forward", plain, &j.host[Q],
                                         &j.host[K], &j.host[V], &j.host[OUT], &batch, &heads,
                                         &p->seqlen_q, &p->seqlen_k, &p->head_dim, &dtype, &p->causal,
                                         &p->scale);
    }
    if (!ok) return NULL; /* Python has released what it had taken */
    ok = perform(&j, batch, heads, dtype, &o);
    for (i = 0; i < TENSORS; i++) PyBuffer_Release(&j.host[i]);
    if (!ok) return NULL;
    if (is_timed) return PyFloat_FromDouble(o.milliseconds);
    Py_RETURN_NONE;
}

static PyObject *forward(PyObject *self, PyObject *args, PyObject *keywords)
{
    (void)self;
    return attend(args, keywords, 0);
}

static PyObject *time_forward(PyObject *self, PyObject *args, PyObject *keywords)
{
    (void)self;
    return attend(args, keywords, 1);
}

static PyObject *device_count(PyObject *self, PyObject *unused)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    (void)self;
    (void)unused;
    return Py_BuildValue("ii", (int)error, error == cudaSuccess ? n : 0);
}

static PyObject *device_info(PyObject *self, PyObject *argument)
{
    struct cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    cudaError_t error;
    long index = PyLong_AsLong(argument);
    (void)self;
    if (index == -1 && PyErr_Occurred()) return NULL;
    if (!device_present()) return NULL;
    error = index < 0 || index > INT_MAX ? cudaErrorInvalidDevice
                                         : cudaGetDeviceProperties(&properties, (int)index);
    if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
    if (error == cudaSuccess) error = cudaRuntimeGetVersion(&runtime);
    if (error != cudaSuccess) return cuda_failure("read the device's properties", error);
    return Py_BuildValue("{s:l,s:s,s:(ii),s:i,s:i,s:i,s:n}", "index", index, "name", properties.name,
                         "compute_capability", properties.major, properties.minor, "multiprocessors",
                         properties.multiProcessorCount, "driver_version", driver, "runtime_version",
                         runtime, "total_memory", (Py_ssize_t)properties.totalGlobalMem);
}

static PyMethodDef methods[] = {
    {"device_count", device_count, METH_NOARGS, "device_count() -> (cudaError, devices)"},
    {"device_info", device_info, METH_O, "device_info(index) -> dict"},
    {"forward", (PyCFunction)(void (*)(void))forward, METH_VARARGS | METH_KEYWORDS,
     "forward(q, k, v, out, batch, heads, seqlen_q, seqlen_k, head_dim, dtype, causal, scale)"},
    {"time_forward", (PyCFunction)(void (*)(void))time_forward, METH_VARARGS | METH_KEYWORDS,
     "time_forward(..., warmup=3, repeats=20) -> mean milliseconds of one kernel"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_core", "Attention on host buffers.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void) { return PyModule_Create(&definition); }
