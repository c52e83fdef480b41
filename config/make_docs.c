/* Prints what documents say of the flags and keys, from their table: attnd.json(5) made whole, from its text on
 * standard input, or the tables of the completion for bash. Runs while attnd is built. */
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config/config_keys.h"

static const struct {
    const char *path, *type, *fallback, *help;
    uint64_t least, most;
} KEYS[] = {
#define KEY(path, type, member, fallback, least, most, help)                                       \
    {path, #type, fallback, help, least, most},
    CFG_KEYS(KEY)
#undef KEY
};

static const struct {
    const char *name, *usage;
} FLAGS[] = {
#define FLAG(id, name, argument, usage, help) {"--" name, usage},
    CFG_FLAGS(FLAG)
#undef FLAG
};

static const char *const LEVELS[] = {CFG_LOG_LEVELS, NULL};
static const char *const FORMATS[] = {CFG_LOG_FORMATS, NULL};
static const char *const TRUTHS[] = {"true", "false", NULL};
static const char *const AUTO[] = {"auto", NULL};
static const char *const NONE[] = {NULL};

enum { N_KEYS = sizeof KEYS / sizeof *KEYS, N_FLAGS = sizeof FLAGS / sizeof *FLAGS };

/* Values that are words. */
static const char *const *words_of(const char *type)
{
    if (strcmp(type, "BOOLEAN") == 0)
        return TRUTHS;
    if (strcmp(type, "LOG_LEVEL") == 0)
        return LEVELS;
    if (strcmp(type, "LOG_FORMAT") == 0)
        return FORMATS;
    return strncmp(type, "AUTO_", 5) == 0 ? AUTO : NONE;
}

/* --- bash ----------------------------------------------------------------------------------------- */

static void print_bash(void)
{
    printf("_attnd_keys=(");
    for (size_t i = 0; i < N_KEYS; i++)
        printf("\n    %s=", KEYS[i].path);
    printf("\n)\ndeclare -gA _attnd_values=(");
    for (size_t i = 0; i < N_KEYS; i++) {
        const char *const *w = words_of(KEYS[i].type);
        if (*w == NULL)
            continue;
        printf("\n    [%s]=\"", KEYS[i].path);
        for (size_t k = 0; w[k] != NULL; k++)
            printf("%s%s", k > 0 ? " " : "", w[k]);
        printf("\"");
    }
    printf("\n)\ndeclare -gA _attnd_flags=(");
    for (size_t i = 0; i < N_FLAGS; i++) {
        const char *takes = strchr(FLAGS[i].usage, ' ');
        printf("\n    [%s]=\"%s\"", FLAGS[i].name, takes != NULL ? takes + 1 : "");
    }
    printf("\n)\n");
}

/* --- man page ------------------------------------------------------------------------------------- */

/* The help as a sentence, in lines of less than 80 columns. A line may not begin as a macro does. */
static void print_sentence(const char *text, bool capital)
{
    size_t column = 0;

    for (bool first = true; *text != '\0'; first = false) {
        size_t n = strcspn(text, " ");
        if (!first)
            putchar(column + n < 76 ? ' ' : '\n');
        if (first || column + n >= 76)
            column = 0;
        if (column == 0 && strchr(".'", *text) != NULL)
            printf("\\&");
        putchar(first && capital ? toupper((unsigned char)*text) : *text);
        printf("%.*s", (int)n - 1, text + 1);
        column += n + 1;
        text += n + (text[n] == ' ');
    }
    printf(".\n");
}

static void print_number(const char *kind, uint64_t n)
{
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;

    if (strcmp(kind, "SIZE") == 0) {
        for (; n >= 1024 && n % 1024 == 0 && u + 1 < sizeof sizes / sizeof *sizes; u++)
            n /= 1024;
        printf("%" PRIu64 " %s", n, sizes[u]);
    } else if (strcmp(kind, "DURATION") == 0) {
        uint64_t unit = n == 0 || n % 1000 != 0 ? 1 : n % 60000 != 0 ? 1000 : 60000;
        printf("%" PRIu64 " %s", n / unit, unit == 1 ? "ms" : unit == 1000 ? "s" : "min");
    } else {
        printf("%" PRIu64, n);
    }
}

/* "Integer, 1 to 64.", "Size, 1 MiB to 1 PiB, or auto." What other types take is in their help. */
static void print_type(const char *type, uint64_t least, uint64_t most)
{
    bool automatic = strncmp(type, "AUTO_", 5) == 0;
    const char *kind = type + (automatic ? 5 : 0);

    if (strcmp(kind, "INTEGER") == 0 || strcmp(kind, "SIZE") == 0 ||
        strcmp(kind, "DURATION") == 0) {
        putchar(*kind);
        for (const char *c = kind + 1; *c != '\0'; c++)
            putchar(tolower((unsigned char)*c));
        printf(", ");
        print_number(kind, least);
        printf(" to ");
        print_number(kind, most);
        printf("%s.\n", automatic ? ", or auto" : "");
    } else if (strcmp(kind, "BOOLEAN") == 0) {
        printf("Boolean.\n");
    } else if (most > 1) {
        printf("At most %" PRIu64 ".\n", most);
    }
}

static void print_item(size_t i)
{
    bool none = KEYS[i].fallback[0] == '\0' || strcmp(KEYS[i].fallback, "\"\"") == 0;

    printf(".It Cm %s Pq %s\n", KEYS[i].path, none ? "none" : KEYS[i].fallback);
    print_type(KEYS[i].type, KEYS[i].least, KEYS[i].most);
}

/* Copies the manual. A line "@KEY@" is the key, whose text follows; at "@@" come the keys that had no line, with
 * their help. */
static bool print_man(void)
{
    bool seen[N_KEYS] = {false};
    char line[256], name[256];

    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t i = 0;
        if (strcmp(line, "@@\n") == 0) {
            for (i = 0; i < N_KEYS; i++) {
                if (!seen[i]) {
                    print_item(i);
                    print_sentence(KEYS[i].help,
                                   strncmp(KEYS[i].type, "LOG_", 4) != 0); /* values */
                }
            }
        } else if (sscanf(line, "@%255[^@]@", name) == 1) {
            while (i < N_KEYS && strcmp(KEYS[i].path, name) != 0)
                i++;
            if (i == N_KEYS) {
                (void)fprintf(stderr, "the manual has the key %s, which is none\n", name);
                return false;
            }
            seen[i] = true;
            print_item(i);
        } else {
            (void)fputs(line, stdout);
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "bash") == 0)
        print_bash();
    else if (argc != 2 || strcmp(argv[1], "man") != 0)
        return 2;
    else if (!print_man())
        return 1;
    return fflush(stdout) == 0 ? 0 : 1;
}
