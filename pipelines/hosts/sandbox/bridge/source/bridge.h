/* What the two halves of the bridge tell each other. Both are 64-bit code of one process: the
 * Windows half is a PE DLL (nvcuda.dll, nvml.dll), the Linux half an ELF library that Wine loads
 * beside it. Everything that passes between them is called with Windows' convention. */
#ifndef BRIDGE_H
#define BRIDGE_H

typedef unsigned long long u64;

#define WINDOWS __attribute__((ms_abi))

/* A function that the DLL exports: its name, and where the export jumps to. */
struct slot {
    const char *name;
    void **target;
};

/* A function that the Windows half answers itself; `bridged` is the driver's, callable there. */
struct replacement {
    const char *name;
    void *function, *bridged;
};

/* How the library that is bridged says some things. */
struct errors {
    u64 missing, unsupported, memory;
};

struct bridge {
    /* From the Windows half: */
    const char *library;              /* libcuda.so.1 */
    const char *essential;            /* a function without which a library is not that one */
    struct slot *slots;               /* ends with a null name */
    struct replacement *replacements; /* likewise */
    struct errors errors;
    int(WINDOWS *start_worker)(void);             /* a Windows thread that runs `serve`; 0: none */
    char *(WINDOWS *unix_path)(const char *path); /* C:\a -> /.../a, or null */
    void(WINDOWS *free_path)(char *path);
    int(WINDOWS *is_code)(const void *address); /* whether Windows code is there */
    /* From the Linux half: */
    int(WINDOWS *connect)(struct bridge *); /* 0, or what was warned of: no bridge then */
    void(WINDOWS *clear_variables)(const char *prefix);
    void(WINDOWS *set_variable)(const char *name, const char *value);
    void(WINDOWS *serve)(void);            /* runs callbacks, never returns */
    void(WINDOWS *end)(void);              /* the process ends: nobody runs callbacks */
    void(WINDOWS *warn)(const char *text); /* a line in the file WCW_BRIDGE_LOG */
};

#endif
