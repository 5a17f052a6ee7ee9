/* The undocumented tables of functions that cuGetExportTable hands out: copies with functions for
 * Windows. A table begins with its size in bytes, or with a function and then ends with 0 or -1.
 * Nothing says which of its words are functions but that they point to code; nothing that is not
 * known to be readable is read. */
#include "linux.h"

enum {
    TABLES = 256,
    RANGES = 1 << 16 /* the kernel's limit */,
    WORDS = 1024,
    READABLE = 1,
    CODE = 2,
    UUID_TEXT = 33
};

#define KNOWN(uuid, what) {uuid, what},
#define WORD(uuid, word, kind, argument)
static const struct {
    const char *uuid, *what;
} known[] = {
#include "tables.def"
};
#undef KNOWN
#undef WORD

#define KNOWN(uuid, what)
#define WORD(uuid, word, kind, argument) {uuid, word, {"", kind, argument, 0, 0}},
static const struct {
    const char *uuid;
    u64 word;
    struct special special;
} words[] = {
#include "tables.def"
};

static const struct special watched = {"", WATCHED, 0, 0, 0};

/* -- what is mapped where -------------------------------------------------------------------- */

static struct range {
    u64 start, end;
    int is;
} ranges[RANGES];
static int range_count;

static void add_range(char *line) /* 7f00-7f10 r-xp ... */
{
    u64 start = strtoull(line, &line, 16), end = *line == '-' ? strtoull(line + 1, &line, 16) : 0;
    int is = (line[1] == 'r' ? READABLE : 0) | (line[1] == 'r' && line[3] == 'x' ? CODE : 0);
    struct range *last = range_count ? &ranges[range_count - 1] : 0;
    if (!is || end <= start) return;
    if (last && last->end == start && last->is == is)
        last->end = end;
    else if (range_count < RANGES)
        ranges[range_count++] = (struct range){start, end, is};
}

static void read_ranges(void)
{
    static char text[8192];
    int file = open("/proc/self/maps", 02000000 /* O_RDONLY|O_CLOEXEC */), held = 0, got;
    range_count = 0;
    while (file >= 0 && (got = read(file, text + held, sizeof text - 1 - held)) > 0) {
        char *line = text, *end;
        text[held += got] = 0;
        while ((end = strchr(line, '\n'))) {
            *end = 0;
            add_range(line);
            line = end + 1;
        }
        held -= line - text;
        for (int i = 0; i < held; i++) text[i] = line[i];
    }
    if (file >= 0) close(file);
}

static int all_are(u64 start, u64 end, int is)
{
    for (int i = 0; i < range_count && start < end; i++)
        if (ranges[i].start <= start && start < ranges[i].end) {
            if (!(ranges[i].is & is)) return 0;
            start = ranges[i].end;
        }
    return start >= end;
}

static int is_code(u64 address) { return all_are(address, address + 1, CODE); }

/* -- a table --------------------------------------------------------------------------------- */

static const char *what_is_known(const char *uuid) /* null: nothing */
{
    for (u64 i = 0; i < COUNT(known); i++)
        if (!strcmp(known[i].uuid, uuid)) return known[i].what;
    return 0;
}

/* How many words it has, an end mark among them; 0 where nothing says so. One that is not known and
 * does not begin with its size may hold nothing but functions. */
static u64 count_words(const u64 *table, int is_known)
{
    u64 at = (u64)table;
    if (!all_are(at, at + 8, READABLE)) return 0;
    if (!is_code(table[0])) {
        u64 size = table[0];
        int right = size % 8 == 0 && 16 <= size && size <= WORDS * 8;
        return right && all_are(at, at + size, READABLE) ? size / 8 : 0;
    }
    for (u64 i = 1; i < WORDS && all_are(at, at + 8 * i + 8, READABLE); i++) {
        if (!table[i] || !~table[i]) return i + 1;
        if (!is_known && !is_code(table[i])) return 0;
    }
    return 0;
}

static const struct special *special_word(const char *uuid, u64 word)
{
    for (u64 i = 0; i < COUNT(words); i++)
        if (!strcmp(words[i].uuid, uuid) && words[i].word == word) return &words[i].special;
    const char *what = what_is_known(uuid);
    return what && *what ? 0 : &watched;
}

static u64 *translated(const u64 *real, const char *uuid)
{
    u64 size = count_words(real, what_is_known(uuid) != 0), functions = 0;
    u64 *made = size ? malloc(size * 8) : 0;
    if (!made) {
        warn("export table %s is refused: its length cannot be told", uuid);
        return 0;
    }
    for (u64 i = 0; i < size; i++) {
        char name[64];
        made[i] = real[i];
        if (!is_code(real[i])) continue; /* a size, an end mark, data */
        snprintf(name, sizeof name, "function %llu of export table %.8s", i, uuid);
        made[i] = (u64)for_windows((void *)real[i], special_word(uuid, i), name);
        if (!made[i]) {
            free(made);
            return 0;
        }
        functions++;
    }
    if (!what_is_known(uuid))
        warn(
            "export table %s is not known: its %llu functions are passed on, integers and pointers "
            "alone; callbacks, floats and structures by value are not translated",
            uuid, functions);
    return made;
}

u64 *table_for_windows(const u64 *real, const unsigned char *id)
{
    static struct {
        const u64 *real;
        u64 *made;
    } tables[TABLES]; /* each is made once: callers compare addresses */
    static char lock;
    static int used;
    char uuid[UUID_TEXT];
    u64 *made = 0;
    int at = 0;

    for (int i = 0; i < 16; i++) snprintf(uuid + 2 * i, 3, "%02x", id[i]);
    acquire(&lock);
    while (at < used && tables[at].real != real) at++;
    if (at == TABLES) {
        warn("export table %s is refused: there are %d already", uuid, TABLES);
    } else if (at < used) {
        made = tables[at].made;
    } else {
        read_ranges();
        made = translated(real, uuid);
        if (made || used < TABLES / 2) { /* refused ones are not looked at again */
            tables[used].real = real;
            tables[used++].made = made;
        }
    }
    release(&lock);
    return made;
}
