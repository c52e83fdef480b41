/* The configuration: what is read prints, and prints the same when it is read again; what is refused is told in a
 * sentence. Input: the file, variables and flags, a line each, with a line "--" between the three. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "config/config.h"

enum { MOST_LINES = 16 };

/* The lines of a part, which is changed; NULL behind the last. */
static size_t split(char *text, char *lines[MOST_LINES + 1])
{
    size_t n = 0;

    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line != NULL && n < MOST_LINES;
         line = strtok_r(NULL, "\n", &save))
        lines[n++] = line;
    lines[n] = NULL;
    return n;
}

static attn_status load(cfg_config **c, int argc, char *const argv[], char *const environment[],
                        attn_error *err)
{
    cfg_action action = CFG_RUN;
    attn_status rc = cfg_load(c, argc, argv, environment, &action, err);

    FUZZ_CHECK(rc == err->code && (rc == ATTN_OK) == (*c != NULL));
    FUZZ_CHECK(rc == ATTN_OK || (err->text[0] != '\0' && strchr(err->text, '\n') == NULL));
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    fuzz_input parts[3];
    char *text[3], *environment[MOST_LINES + 1], *argv[MOST_LINES + 3], path[512];
    cfg_config *c = NULL, *again = NULL;
    attn_error err = {0}, err_again = {0};

    for (size_t i = 0; i < 3; i++) {
        parts[i] = fuzz_part(&in);
        text[i] = fuzz_text(parts[i].at, parts[i].n);
    }
    fuzz_file("attnd.conf", text[0], parts[0].n);
    (void)snprintf(path, sizeof path, "%s/attnd.conf", fuzz_folder());
    argv[0] = fuzz_text("--config", 8);
    argv[1] = path;
    (void)split(text[1], environment);
    int argc = 2 + (int)split(text[2], argv + 2);

    attn_status rc = load(&c, argc, argv, environment, &err);
    FUZZ_CHECK(load(&again, argc, argv, environment, &err_again) == rc);
    FUZZ_CHECK(fuzz_same_error(&err, &err_again));
    if (rc == ATTN_OK) {
        char *printed = cfg_print(c), *printed_again = cfg_print(again);
        FUZZ_CHECK(printed != NULL && printed_again != NULL && strcmp(printed, printed_again) == 0);
        for (size_t i = 0; i < cfg_warning_count(c); i++)
            FUZZ_CHECK(strchr(cfg_warning(c, i), '\n') == NULL);
        free(printed);
        free(printed_again);
    }
    cfg_free(c);
    cfg_free(again);
    free(argv[0]);
    for (size_t i = 0; i < 3; i++)
        free(text[i]);
    return 0;
}
