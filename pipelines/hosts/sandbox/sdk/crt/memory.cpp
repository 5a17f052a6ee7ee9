// operator new and delete, which Microsoft links statically too: over malloc, asking the program's
// handler for more when there is none.
#include <vcruntime_exception.h>
#include <vcruntime_new.h>
#include <malloc.h>
#include <stdlib.h>

extern "C" int __cdecl _callnewh(size_t); // of ucrtbase.dll: 0 when there is no handler

static void *allocate(size_t size) noexcept { return malloc(size ? size : 1); }
static void *allocate(size_t size, std::align_val_t alignment) noexcept
{
    return _aligned_malloc(size ? size : 1, static_cast<size_t>(alignment));
}

template <class... Alignment> static void *insist(size_t size, Alignment... alignment)
{
    for (;;) {
        if (void *got = allocate(size, alignment...)) return got;
        if (!_callnewh(size)) throw std::bad_alloc();
    }
}

#define _Allocates(operation)                                                                     \
    void *operation(size_t size) { return insist(size); }                                         \
    void *operation(size_t size, std::align_val_t how) { return insist(size, how); }              \
    void *operation(size_t size, const std::nothrow_t &) noexcept { return allocate(size); }      \
    void *operation(size_t size, std::align_val_t how, const std::nothrow_t &) noexcept           \
    {                                                                                             \
        return allocate(size, how);                                                               \
    }
#define _Frees(operation)                                                                         \
    void operation(void *what) noexcept { free(what); }                                           \
    void operation(void *what, size_t) noexcept { free(what); }                                   \
    void operation(void *what, const std::nothrow_t &) noexcept { free(what); }                   \
    void operation(void *what, std::align_val_t) noexcept { _aligned_free(what); }                \
    void operation(void *what, size_t, std::align_val_t) noexcept { _aligned_free(what); }        \
    void operation(void *what, std::align_val_t, const std::nothrow_t &) noexcept                 \
    {                                                                                             \
        _aligned_free(what);                                                                      \
    }
_Allocates(operator new)
_Allocates(operator new[])
_Frees(operator delete)
_Frees(operator delete[])
