/* A whole encoder and its tokeniser when memory fails: while they are loaded, asked, and loaded anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon.h"
#include "tests/faults.h"
#include "tests/formats.h"
#include "tests/scratch.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"
#include "tests/walk.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define POST(path, body)                                                                           \
    {                                                                                              \
        path, FORMAT_JSON, FORMAT_JSON, body, sizeof(body) - 1, NULL, true                         \
    }

static fault_page *faults;

#define NEED_FAULTS()                                                                              \
    if (faults == NULL)                                                                            \
    return

/* WordPiece, byte-level BPE, Unigram with a table of characters; and what stands in vocab.txt. */
static const char *const kinds[] = {"bert-uncased", "roberta", "xlm-roberta", "words"};
static char folders[COUNT(kinds)][256];

static int open_all(void **state)
{
    (void)scratch_setup(state);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        (void)snprintf(folders[i], sizeof folders[i], "%s", scratch_path(kinds[i]));
        char *tokenizer = st_path("tests/tokenizers/%s/tokenizer.json", kinds[i]);
        if (strcmp(kinds[i], "words") == 0)
            tiny_encoder_write(folders[i], 3, 1, NULL);
        else
            tiny_encoder_write_for(folders[i], 3, tokenizer);
        free(tokenizer);
    }
    faults = faults_open();
    if (faults == NULL)
        printf("skipped: faults: the library that makes calls fail is not part of this build\n");
    return 0;
}

static int close_all(void **state)
{
    faults_close();
    return scratch_teardown(state);
}

static void a_load_survives_every_failed_allocation(void **state)
{
    (void)state;
    NEED_FAULTS();
    for (size_t i = 0; i < COUNT(kinds); i++)
        assert_true(walk_check(faults, FAULT_ALLOC, folders[i], NULL) > 100);
}

static void a_disk_error_while_loading_names_the_folder(void **state)
{
    (void)state;
    NEED_FAULTS();
    for (size_t i = 0; i < COUNT(kinds); i++)
        assert_true(walk_check(faults, FAULT_READ, folders[i], folders[i]) > 5);
}

/* Texts that every part of the tokenisers has work with: accents, scripts, a word that is cut in many. */
#define TEXT  "\"The c\\u00e1ts \\uff21 sat, 1234 \\u4f60\\u597d \\u0440\\u0443\\u0441!\""
#define WHOLE "{\"inputs\":[" TEXT ",[\"a mat\",\"the cat\"]],\"return_hidden_states\":[0,1,2],"

static test_daemon *serve(size_t i)
{
    char *model = st_path("m=%s", folders[i]);
    test_daemon *d =
        daemon_start((const char *const[]){"serve", "--model", model, "--set", "log.level=error",
                                           "--set", "admin.enabled=true", NULL});
    free(model);
    return d;
}

static void a_request_survives_every_failed_allocation(void **state)
{
    (void)state;
    NEED_FAULTS();
    static const asked q[] = {
        POST("/v1/models/m/encode", WHOLE "\"return_attentions\":{\"rollout\":true}}"),
        POST("/v1/models/m/encode", WHOLE "\"encoding_format\":\"base64\",\"return_attentions\":"
                                          "{\"layers\":[1],\"top_k\":2},\"pooling\":\"none\"}"),
        POST("/v1/models/m/encode", "{\"input_ids\":[[2,5,6,3],[1,0,0,0]],\"lengths\":[3,1]}"),
        POST("/v1/embeddings", "{\"input\":[" TEXT ",\"a\"]}"),
        POST("/v1/embeddings", "{\"input\":[[2,5],[7]],\"encoding_format\":\"base64\"}"),
        POST("/embed", "{\"inputs\":" TEXT "}"),
    };

    for (size_t i = 0; i < COUNT(kinds); i++) {
        test_daemon *d = serve(i);
        for (size_t k = 0; k < (i == 0 ? COUNT(q) : 1); k++)
            walk_request_without_loss(faults, d, &q[k], NULL);
        daemon_stop(d);
    }
}

/* A load under way that fails leaves the old model, one that succeeds is the same. */
static void a_reload_survives_every_failed_allocation(void **state)
{
    (void)state;
    NEED_FAULTS();
    static const asked load = POST("/v2/repository/models/m/load", "{}");
    static const asked question = POST("/v1/models/m/encode", WHOLE "\"return_attentions\":true}");

    for (size_t i = 0; i < COUNT(kinds); i++) {
        test_daemon *d = serve(i);
        walk_request_without_loss(faults, d, &load, &question);
        daemon_stop(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_survives_every_failed_allocation),
        cmocka_unit_test(a_disk_error_while_loading_names_the_folder),
        cmocka_unit_test(a_request_survives_every_failed_allocation),
        cmocka_unit_test(a_reload_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("faults of encoders", tests, open_all, close_all);
}
