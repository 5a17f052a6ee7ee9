/* bcryptprimitives.dll for Wine 8, which has none: Rust's standard library takes its random
 * bytes from ProcessPrng (https://github.com/rust-lang/rust/pull/121337). */
unsigned char __stdcall SystemFunction036(void *buffer, unsigned long length); /* RtlGenRandom */

int __stdcall ProcessPrng(unsigned char *buffer, unsigned long long length)
{
    while (length) {
        unsigned long step = length > 0x10000000 ? 0x10000000 : (unsigned long)length;
        if (!SystemFunction036(buffer, step)) return 0;
        buffer += step;
        length -= step;
    }
    return 1;
}
