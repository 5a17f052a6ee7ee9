/* The Linux half: opens the driver's library, and gives each function that the Windows half exports
 * a thunk to jump to. */
#include "linux.h"

extern char **environ;

struct bridge *bridge;
void *library;

static const struct special missing = {"", MISSING, 0, 0, 0};

static void *for_export(const char *name)
{
    void *real = dlsym(library, name);
    const struct special *special = special_of(name, real);
    if (real) return for_windows(real, special, name);
    if (special && special->kind != REFUSED) special = 0;
    return for_windows((void *)name, special ? special : &missing,
                       name); /* an address of its own */
}

static void *exported(const char *name)
{
    for (struct replacement *r = bridge->replacements; r->name; r++)
        if (!strcmp(r->name, name)) return r->function;
    return for_export(name);
}

static int WINDOWS connect(struct bridge *b)
{
    bridge = b;
    library = dlopen(b->library, 2 /* RTLD_NOW */);
    if (!library) {
        warn("it cannot be loaded: %s", dlerror());
        return 1;
    }
    if (!dlsym(library, b->essential)) {
        warn("it is no driver: it has no %s", b->essential);
        return 1;
    }
    if (!make_room_for_thunks()) {
        warn("no memory for code could be had");
        return 1;
    }
    for (struct replacement *r = b->replacements; r->name; r++) r->bridged = for_export(r->name);
    for (struct slot *s = b->slots; s->name; s++) *s->target = exported(s->name);
    return 0;
}

static void WINDOWS clear_variables(const char *prefix)
{
    char name[128];
    for (char **variable = environ; variable && *variable;) {
        const char *end = strchr(*variable, '=');
        u64 size = end ? (u64)(end - *variable) : 0;
        if (size && size < sizeof name && !strncmp(*variable, prefix, strlen(prefix))) {
            memcpy(name, *variable, size);
            name[size] = 0;
            unsetenv(name); /* moves the next one here */
        } else {
            variable++;
        }
    }
}

static void WINDOWS set_variable(const char *name, const char *value) { setenv(name, value, 1); }

static void WINDOWS tell(const char *text) { warn("%s", text); }

static int attach(void *b)
{
    struct bridge *both = b;
    both->connect = connect;
    both->clear_variables = clear_variables;
    both->set_variable = set_variable;
    both->serve = serve;
    both->end = end_callbacks;
    both->warn = tell;
    return 0;
}

/* What Wine looks for: called with __wine_unix_call, on a stack too small for a driver. */
__attribute__((visibility("default"))) int (*const __wine_unix_call_funcs[])(void *) = {attach};
