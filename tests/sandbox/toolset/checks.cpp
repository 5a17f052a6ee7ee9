// What a C++ extension needs of the run-time and of libc++; each check says its name when it fails.
#include <atomic>
#include <charconv>
#include <cmath>
#include <exception>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <variant>
#include <vector>

static std::string failed;
static void check(bool good, const char *name)
{
    if (!good) failed.append(name).append("; ");
}

struct Base {
    virtual ~Base() = default;
};
struct Derived : Base {};

static std::atomic<int> made{0}, ended{0}, initialised{0};
struct PerThread {
    PerThread() { made++; }
    ~PerThread() { ended++; }
    int used = 0;
};
static thread_local PerThread per_thread;

static int once()
{
    static int value = [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return ++initialised;
    }();
    return value;
}

static void exceptions()
{
    try {
        std::vector<int>().at(3);
        check(false, "at");
    } catch (const std::out_of_range &error) {
        check(std::string(error.what()).size() > 0, "what");
    }
    std::exception_ptr kept;
    try {
        throw std::runtime_error("kept");
    } catch (...) {
        kept = std::current_exception();
    }
    try {
        std::rethrow_exception(kept);
    } catch (const std::exception &error) {
        check(std::string(error.what()) == "kept", "rethrow");
    }
    try {
        try {
            throw std::invalid_argument("inner");
        } catch (...) {
            std::throw_with_nested(std::runtime_error("outer"));
        }
    } catch (const std::runtime_error &error) {
        try {
            std::rethrow_if_nested(error);
            check(false, "nested");
        } catch (const std::invalid_argument &) {
        }
    }
    try {
        ::operator delete(::operator new(size_t(1) << 62));
        check(false, "bad_alloc");
    } catch (const std::bad_alloc &) {
    }
    check(new (std::nothrow) char[8] != nullptr, "nothrow");
}

static void types()
{
    std::unique_ptr<Base> base = std::make_unique<Derived>();
    check(dynamic_cast<Derived *>(base.get()) != nullptr, "dynamic_cast");
    Base &what = *base;
    check(typeid(what) == typeid(Derived), "typeid");
    check(std::string(typeid(what).name()).find("Derived") != std::string::npos, "name");
    try {
        Base plain;
        (void)dynamic_cast<Derived &>(plain);
        check(false, "bad_cast");
    } catch (const std::bad_cast &) {
    }
    struct alignas(64) Wide {
        char bytes[64];
    };
    auto wide = std::make_unique<Wide>();
    check(reinterpret_cast<size_t>(wide.get()) % 64 == 0, "aligned new");
}

static void threads()
{
    std::mutex guard;
    int sum = 0;
    std::vector<std::thread> all;
    for (int i = 1; i <= 8; i++)
        all.emplace_back([&, i] {
            per_thread.used += i;
            once();
            std::lock_guard<std::mutex> held(guard);
            sum += per_thread.used;
        });
    for (auto &one : all) one.join();
    check(sum == 36, "thread_local");
    check(made >= 8 && ended >= 8, "destructors of thread_local");
    check(initialised == 1, "static, once");
}

static void library()
{
    std::ostringstream text;
    text << std::setprecision(3) << 3.14159 << ' ' << std::hex << 255 << ' ' << std::boolalpha << true;
    check(text.str() == "3.14 ff true", "ostream");
    char digits[32];
    auto end = std::to_chars(digits, digits + sizeof digits, 0.1);
    check(std::string(digits, end.ptr) == "0.1", "to_chars");
    check(std::stod("2.5") == 2.5 && std::to_string(7) == "7", "conversions");
    check(std::regex_match("cu130", std::regex("cu[0-9]+")), "regex");
    check(std::isnan(std::nan("")) && std::isinf(INFINITY) && !std::isfinite(-INFINITY), "classify");
    check(std::fma(2.0, 3.0, 1.0) == 7.0 && std::lround(2.5L) == 3, "math");
    std::unordered_map<std::string, std::variant<int, double>> map{{"one", 1}};
    check(std::get<int>(map.at("one")) == 1, "containers");
    std::function<int(int)> twice = [](int x) { return 2 * x; };
    check(twice(std::optional<int>(21).value()) == 42, "function");
    volatile char many[20000];
    many[0] = many[19999] = 1;
    check(many[0] == 1, "a stack of more than a page");
}

extern "C" __declspec(dllexport) const char *checks()
{
    exceptions();
    types();
    threads();
    library();
    return failed.c_str();
}
