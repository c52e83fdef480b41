/* .npy and .npz files: opened, and every tensor read in both ways. Input: how the file is called and, with 4, that a
 * zip is to be made around the bytes, which are its one member, then; the rest is the file. */
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <zlib.h>

#include "tests/fuzz/weights.h"

static void put(unsigned char **at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, value >>= 8)
        *(*at)++ = (unsigned char)value;
}

/* What a local header and an entry of the directory have in common, from the version on. */
static void put_member(unsigned char **at, fuzz_input member)
{
    put(at, 20, 2); /* version */
    put(at, 0, 2 + 2 + 4);
    put(at, crc32(0, member.at, (uInt)member.n), 4);
    put(at, member.n, 4);
    put(at, member.n, 4);
    put(at, 5, 2); /* length of the name */
    put(at, 0, 2);
}

/* A zip with the member x.npy, whose checksum is right. */
static unsigned char *make_zip(fuzz_input member, size_t *n)
{
    unsigned char *zip = malloc(member.n + 200), *at = zip;

    FUZZ_CHECK(zip != NULL);
    put(&at, 0x04034b50, 4);
    put_member(&at, member);
    memcpy(at, "x.npy", 5);
    at += 5;
    if (member.n > 0)
        memcpy(at, member.at, member.n);
    at += member.n;
    size_t directory = (size_t)(at - zip);
    put(&at, 0x02014b50, 4);
    put(&at, 20, 2);
    put_member(&at, member);
    put(&at, 0, 2 + 2 + 2 + 4 + 4);
    memcpy(at, "x.npy", 5);
    at += 5;
    size_t end = (size_t)(at - zip);
    put(&at, 0x06054b50, 4);
    put(&at, 0, 4);
    put(&at, 1, 2);
    put(&at, 1, 2);
    put(&at, end - directory, 4);
    put(&at, directory, 4);
    put(&at, 0, 2);
    *n = (size_t)(at - zip);
    return zip;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const names[] = {"x", "x.npy", "x.npz", "x.npz"};
    fuzz_input in = {data, n};
    unsigned how = fuzz_byte(&in);
    const char *name = names[how & 3];

    if (how & 4) {
        size_t zip_bytes = 0;
        unsigned char *zip = make_zip(in, &zip_bytes);
        name = "x.npz";
        fuzz_file(name, zip, zip_bytes);
        free(zip);
    } else {
        fuzz_file(name, in.n > 0 ? in.at : data, in.n);
    }
    weights_try(name);
    fuzz_file(name, NULL, 0);
    return 0;
}
