/* The handshake: NVIDIA's run-time and NVIDIA's driver make sure that they belong to one process.
 *
 * Each signs what it knows of that process: its number and the thread's, the addresses of two tables
 * and of the function below, and the GPUs. Linux' driver signs Linux' numbers and its own addresses,
 * of which a Windows run-time sees neither; so the answer is made here, from what that sees: an HMAC
 * (RFC 2104) with the hash MD2 (RFC 1319), as public sources describe it. Both sides are NVIDIA's
 * own, on an NVIDIA GPU. docs/gpu-bridge.md, "Legal", says what whoever uses this should know. */
#include "nvcuda.h"

enum { BLOCK = 16, ROUNDS = 18, PCI_DOMAIN = 50, PCI_BUS = 33, PCI_DEVICE = 34 };

/* -- MD2 ---------------------------------------------------------------------------------------- */

static const unsigned char PI[256] = {
    /* a permutation, from the digits of pi */
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,
    243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212,
    224, 22,  103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160,
    251, 245, 142, 187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137,
    11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151,
    3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184,
    56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100,
    113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246,
    28,  70,  97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249,
    206, 186, 197, 234, 38,  44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129,
    77,  82,  106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120,
    136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,  242, 239, 183, 14,
    102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,  80,  180, 143, 237, 31,
    26,  219, 153, 141, 51,  159, 17,  131, 20,
};

struct md2 {
    unsigned char state[BLOCK], checksum[BLOCK], block[BLOCK], last;
    int filled;
};

static void add_byte(struct md2 *hash, unsigned char byte)
{
    unsigned char x[3 * BLOCK], t = 0;
    hash->last = hash->checksum[hash->filled] ^= PI[byte ^ hash->last];
    hash->block[hash->filled++] = byte;
    if (hash->filled < BLOCK) return;
    for (int i = 0; i < BLOCK; i++) {
        x[i] = hash->state[i];
        x[i + BLOCK] = hash->block[i];
        x[i + 2 * BLOCK] = hash->state[i] ^ hash->block[i];
    }
    for (int round = 0; round < ROUNDS; t += round++)
        for (int i = 0; i < 3 * BLOCK; i++) t = x[i] ^= PI[t];
    for (int i = 0; i < BLOCK; i++) hash->state[i] = x[i];
    hash->filled = 0;
}

static void add(struct md2 *hash, const void *bytes, int count, unsigned char mask)
{
    for (int i = 0; i < count; i++) add_byte(hash, ((const unsigned char *)bytes)[i] ^ mask);
}

static void finish(struct md2 *hash) /* the hash is then in `state` */
{
    unsigned char sum[BLOCK];
    for (int missing = BLOCK - hash->filled, i = missing; i; i--) add_byte(hash, missing);
    for (int i = 0; i < BLOCK; i++) sum[i] = hash->checksum[i];
    add(hash, sum, BLOCK, 0);
}

/* -- the answer --------------------------------------------------------------------------------- */

static const unsigned char KEY[BLOCK] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                         0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};

typedef result check(unsigned version, u64 seconds, void *answer);

static const void *run_time_table; /* as the run-time has it */
static const void *table[3];
static check *drivers;

static result sign_gpus(struct md2 *hash)
{
    struct {
        uuid id;
        int domain, bus, device;
    } gpu;
    int count, device;
    if (DRIVER(cuDeviceGetCount, &count)) return UNKNOWN;
    for (int i = 0; i < count; i++) {
        if (DRIVER(cuDeviceGet, &device, i) || DRIVER(cuDeviceGetUuid, gpu.id, device) ||
            DRIVER(cuDeviceGetAttribute, &gpu.domain, PCI_DOMAIN, device) ||
            DRIVER(cuDeviceGetAttribute, &gpu.bus, PCI_BUS, device) ||
            DRIVER(cuDeviceGetAttribute, &gpu.device, PCI_DEVICE, device))
            return UNKNOWN;
        add(hash, &gpu, sizeof gpu, 0);
    }
    return 0;
}

static result answer_check(unsigned version, u64 seconds, void *answer)
{
    struct {
        unsigned driver, run_time, process, thread;
        const void *run_time_table, *table, *function;
        u64 seconds;
    } here = {0,
              version,
              GetCurrentProcessId(),
              GetCurrentThreadId(),
              run_time_table,
              table,
              (const void *)answer_check,
              seconds};
    struct md2 inner = {0}, outer = {0};

    if (version % 10 < 2)
        return drivers(version, seconds, answer); /* a constant: nothing is signed */
    if (DRIVER(cuDriverGetVersion, &here.driver)) return UNKNOWN;
    add(&inner, KEY, BLOCK, 0x36);
    add(&inner, &here, sizeof here, 0);
    if (sign_gpus(&inner)) return UNKNOWN;
    finish(&inner);
    add(&outer, KEY, BLOCK, 0x5c);
    add(&outer, inner.state, BLOCK, 0);
    finish(&outer);
    for (int i = 0; i < BLOCK; i++) ((unsigned char *)answer)[i] = outer.state[i];
    return 0;
}

const void *handshake_table_for(const void *const *theirs)
{
    if (theirs[0] != (void *)sizeof table) {
        bridge.warn("the handshake's table is another one: the driver answers itself");
        return theirs;
    }
    *(const void **)&drivers = theirs[1];
    table[0] = theirs[0];
    table[1] = (const void *)answer_check;
    table[2] = theirs[2];
    return table;
}

void handshake_about(const void *a_table) { run_time_table = a_table; }
