/* What the files of the Windows half share. The first is for both DLLs, the rest is what NVIDIA's
 * Windows driver has and its Linux driver has not: a file each. */
#ifndef NVCUDA_H
#define NVCUDA_H

#include "bridge.h"
#include <windows.h>

extern struct bridge bridge;

char *unix_path(const char *path); /* C:\a -> /.../a, to be freed with free_path; or null */
void free_path(char *path);

#ifdef NVCUDA

typedef unsigned char uuid[16];
typedef int result; /* CUresult */

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    FILE_NOT_FOUND = 301,
    INVALID_HANDLE = 400,
    UNKNOWN = 999
};

/* Calls a function of the driver's. */
#define DRIVER(name, ...) (((result (*)(u64, ...))to_##name)((u64)__VA_ARGS__))
extern void *to_cuDeviceGet, *to_cuDeviceGetAttribute, *to_cuDeviceGetCount, *to_cuDeviceGetUuid,
    *to_cuDriverGetVersion;

/* What the Windows half answers instead of the driver; `replaced` are the driver's own. */
enum { INIT, GET_EXPORT_TABLE };
extern struct replacement replaced[];
result init(unsigned flags);                                          /* variables.c */
result get_luid(unsigned char *luid, unsigned *nodes, int device);    /* luid.c */
result get_export_table(const void **table, const unsigned char *id); /* tables.c */

/* Tables. Word 0 is their size in bytes. */
extern const void *const notices_table[3]; /* notices.c */
extern const void *const hybrid_table[3];  /* hybrid.c */
/* handshake.c: the driver's table as Windows gets it, with our answer in it. */
const void *handshake_table_for(const void *const *drivers);
void handshake_about(const void *run_time_table);

void thread_ends(void); /* notices.c */

#endif
#endif
