/* safetensors files, alone and as the shards of a folder, with an index or without one. Input: how; with 2 the index and
 * a line "--"; then up to three files, each but the last ended by such a line. With 1 a file is its JSON alone: the
 * length goes in front of it and 16 bytes of data for each of the upper four bits of `how` behind it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "tests/fuzz/weights.h"

enum { HEADER_ALONE = 1, INDEX = 2 };

static void write_shard(const char *name, fuzz_input part, unsigned how)
{
    size_t data = how & HEADER_ALONE ? (how >> 4 & 15) * 16 : 0, at = 0;
    unsigned char *file = calloc(1, 8 + part.n + data);

    FUZZ_CHECK(file != NULL);
    for (; how & HEADER_ALONE && at < 8; at++)
        file[at] = (unsigned char)((uint64_t)part.n >> 8 * at);
    if (part.n > 0)
        memcpy(file + at, part.at, part.n);
    fuzz_file(name, file, at + part.n + data);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const names[] = {"model.safetensors", "b.safetensors", "c.safetensors"};
    static const char index[] = "model.safetensors.index.json";
    fuzz_input in = {data, n};
    unsigned how = fuzz_byte(&in);
    size_t files = 0;

    if (how & INDEX) {
        fuzz_input part = fuzz_part(&in);
        fuzz_file(index, part.n > 0 ? part.at : data, part.n);
    }
    do
        write_shard(names[files++], fuzz_part(&in), how);
    while (in.n > 0 && files < 3);
    weights_try(NULL);
    weights_try(names[0]);
    for (size_t i = 0; i < files; i++)
        fuzz_file(names[i], NULL, 0);
    fuzz_file(index, NULL, 0);
    return 0;
}
