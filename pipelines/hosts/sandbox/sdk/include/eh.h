// What is done when exception handling gives up: functions of vcruntime140.dll and ucrtbase.dll.
#pragma once
#include <vcruntime.h>

typedef void(__cdecl *terminate_handler)();
typedef void(__cdecl *terminate_function)();

extern "C" __declspec(noreturn) void __cdecl terminate() noexcept;
extern "C" terminate_handler __cdecl set_terminate(terminate_handler) noexcept;
extern "C" terminate_handler __cdecl _get_terminate();
extern "C" int __cdecl __uncaught_exceptions() noexcept;
