/* Of a program: what runs before main. CMake links some to see that a compiler works. */
typedef int(__cdecl *c_initialiser)(void);
typedef void(__cdecl *cxx_initialiser)(void);
extern c_initialiser c_first[], c_last[]; /* startup.c */
extern cxx_initialiser cxx_first[], cxx_last[];

__declspec(dllimport) int _initterm_e(c_initialiser *, c_initialiser *);
__declspec(dllimport) void _initterm(cxx_initialiser *, cxx_initialiser *);
__declspec(dllimport) int _configure_narrow_argv(int);
__declspec(dllimport) int *__p___argc(void);
__declspec(dllimport) char ***__p___argv(void);
__declspec(dllimport) void exit(int);
int main(int, char **);

void mainCRTStartup(void)
{
    if (_initterm_e(c_first, c_last)) exit(255);
    _initterm(cxx_first, cxx_last);
    _configure_narrow_argv(1);
    exit(main(*__p___argc(), *__p___argv()));
}
