// type_info of Microsoft's ABI: the compiler emits objects of this layout, vcruntime140.dll compares
// and names them, and their table of virtual functions is in msvcrt.lib.
#pragma once
#include <vcruntime_exception.h>

struct __std_type_info_data {
    const char *_UndecoratedName; // made when it is asked for
    const char _DecoratedName[1];
};
// What the names made for this DLL hang from, until it is unloaded.
extern "C" struct __type_info_root {
    void *_Header[2];
} __type_info_root_node;
extern "C" int __cdecl __std_type_info_compare(const __std_type_info_data *,
                                               const __std_type_info_data *);
extern "C" size_t __cdecl __std_type_info_hash(const __std_type_info_data *);
extern "C" const char *__cdecl __std_type_info_name(__std_type_info_data *, __type_info_root *);

class type_info {
public:
    type_info(const type_info &) = delete;
    type_info &operator=(const type_info &) = delete;
    virtual ~type_info() noexcept;

    bool operator==(const type_info &_Other) const noexcept { return _Compare(_Other) == 0; }
    bool operator!=(const type_info &_Other) const noexcept { return _Compare(_Other) != 0; }
    bool before(const type_info &_Other) const noexcept { return _Compare(_Other) < 0; }
    size_t hash_code() const noexcept { return __std_type_info_hash(&_Data); }
    const char *name() const noexcept { return __std_type_info_name(&_Data, &__type_info_root_node); }
    const char *raw_name() const noexcept { return _Data._DecoratedName; }

private:
    int _Compare(const type_info &_Other) const noexcept
    {
        return __std_type_info_compare(&_Data, &_Other._Data);
    }

    mutable __std_type_info_data _Data;
};

namespace std {
using ::type_info;

class bad_cast : public exception {
public:
    bad_cast() noexcept : exception("bad cast", 1) {}
};

class bad_typeid : public exception {
public:
    bad_typeid() noexcept : exception("bad typeid", 1) {}
};
}
