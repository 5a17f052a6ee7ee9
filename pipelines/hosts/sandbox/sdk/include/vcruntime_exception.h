// std::exception and what the language itself throws. vcruntime140.dll copies and destroys the
// text, so that layout and names are its: these exceptions cross the borders of DLLs.
#pragma once
#include <eh.h>
#include <vcruntime.h>

struct __std_exception_data {
    const char *_What;
    bool _DoFree;
};
extern "C" void __cdecl __std_exception_copy(const __std_exception_data *from,
                                             __std_exception_data *to);
extern "C" void __cdecl __std_exception_destroy(__std_exception_data *);

namespace std {
class exception {
public:
    exception() noexcept : _Data() {}
    explicit exception(const char *_Text) noexcept : _Data() { _Copy({_Text, true}); }
    // Of a text that lives as long as the program.
    exception(const char *_Text, int) noexcept : _Data{_Text, false} {}
    exception(const exception &_Other) noexcept : _Data() { _Copy(_Other._Data); }
    exception &operator=(const exception &_Other) noexcept
    {
        if (this != &_Other) {
            __std_exception_destroy(&_Data);
            _Copy(_Other._Data);
        }
        return *this;
    }
    virtual ~exception() noexcept { __std_exception_destroy(&_Data); }
    virtual const char *what() const { return _Data._What ? _Data._What : "Unknown exception"; }

private:
    void _Copy(const __std_exception_data &_From) noexcept { __std_exception_copy(&_From, &_Data); }

    __std_exception_data _Data;
};

class bad_exception : public exception {
public:
    bad_exception() noexcept : exception("bad exception", 1) {}
};

class bad_alloc : public exception {
public:
    bad_alloc() noexcept : exception("bad allocation", 1) {}

protected:
    explicit bad_alloc(const char *_Text) noexcept : exception(_Text, 1) {}
};

class bad_array_new_length : public bad_alloc {
public:
    bad_array_new_length() noexcept : bad_alloc("bad array new length") {}
};
}
