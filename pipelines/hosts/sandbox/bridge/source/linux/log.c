/* Warnings, for whoever reads the result: a line each in the file that WCW_BRIDGE_LOG names. A run
 * of any length writes a bounded number of them, for the file and for each process. */
#include "linux.h"

enum { CREATE_AND_APPEND = 02002101 /* O_WRONLY|O_CREAT|O_APPEND|O_CLOEXEC */, AT_END = 2 };
enum { LINE = 400, LINES = 200, FILE_SIZE = 64 << 10 };

void warn(const char *format, ...)
{
    static int written;
    const char *path = getenv("WCW_BRIDGE_LOG");
    char text[LINE];
    int size = snprintf(text, sizeof text, "%s: ", bridge ? bridge->library : "bridge");
    __builtin_va_list arguments;

    if (!path || __atomic_fetch_add(&written, 1, __ATOMIC_RELAXED) >= LINES) return;
    __builtin_va_start(arguments, format);
    size += vsnprintf(text + size, sizeof text - size - 1, format, arguments);
    __builtin_va_end(arguments);
    if (size > LINE - 2) size = LINE - 2;
    for (int i = 0; i < size; i++) /* names are the program's: no second line, no escape codes */
        if (text[i] < ' ' || text[i] > '~') text[i] = '?';
    text[size++] = '\n';
    int file = open(path, CREATE_AND_APPEND, 0600);
    if (file < 0) return;
    if (lseek(file, 0, AT_END) < FILE_SIZE) (void)!write(file, text, size);
    close(file);
}
