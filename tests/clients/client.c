/* client [URL]: sends six tokens to the demo model, prints which token each one takes most from.
 *
 * cc client.c -lcurl. A machine with little-endian floats, as the bytes behind base64 are. */
#define _POSIX_C_SOURCE 200809L
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 6, WIDTH = 16, ATTEMPTS = 6 };

typedef struct {
    char *text; /* NUL behind it */
    size_t bytes;
} buffer;

static size_t append(char *from, size_t one, size_t n, void *to)
{
    buffer *b = to;
    char *more = realloc(b->text, b->bytes + n * one + 1);

    if (more == NULL)
        return 0;
    memcpy(more + b->bytes, from, n * one);
    b->text = more;
    b->bytes += n * one;
    b->text[b->bytes] = '\0';
    return n * one;
}

/* One POST after the other until the answer is no 503. The status, 0 when there was no answer. */
static long perform(CURL *curl, const char *url, buffer *body)
{
    long status = 0;

    for (int left = ATTEMPTS; left > 0; left--) {
        curl_off_t seconds = 0;
        body->bytes = 0;
        CURLcode rc = curl_easy_perform(curl);
        if (rc != CURLE_OK) {
            fprintf(stderr, "%s: %s\n", url, curl_easy_strerror(rc));
            return 0;
        }
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        if (status != 503 || left == 1)
            break;
        curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
        sleep(seconds > 0 ? (unsigned)seconds : 1);
    }
    return status;
}

/* The answer, for free(); NULL, and a message, when there is none. */
static char *post(const char *url, const char *json)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    buffer body = {NULL, 0};
    long status = 0;

    if (curl != NULL && headers != NULL) {
        curl_easy_setopt(curl, CURLOPT_URL, url);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
        status = perform(curl, url, &body);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    if (status == 200 && body.bytes > 0)
        return body.text;
    if (status != 0)
        fprintf(stderr, "%s: %ld: %s\n", url, status, body.bytes > 0 ? body.text : "");
    free(body.text);
    return NULL;
}

/* The request as JSON, for free(), or NULL. */
static char *write_request(const float *x)
{
    char *json = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&json, &bytes);

    if (f == NULL)
        return NULL;
    fputs(
        "{\"return_attentions\":{\"heads\":[0]},\"encoding_format\":\"base64\",\"inputs_embeds\":[",
        f);
    for (int i = 0; i < TOKENS * WIDTH; i++) /* nine digits are enough for every float */
        fprintf(f, "%s%.9g", i % WIDTH > 0 ? "," : i > 0 ? "],[" : "[", (double)x[i]);
    fputs("]]}", f);
    if (fclose(f) != 0) {
        free(json);
        return NULL;
    }
    return json;
}

static int digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

/* x = the n numbers of the tensor object with that name. Its data is one string of base64. */
static int read_tensor(float *x, size_t n, const char *json, const char *name)
{
    char key[64];
    unsigned char *bytes = (unsigned char *)x;
    size_t filled = 0;
    unsigned held = 0;
    int bits = 0, d = 0;

    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *at = strstr(json, key);
    if (at != NULL)
        at = strstr(at, "\"data\":\"");
    if (at == NULL)
        return 0;
    for (at += strlen("\"data\":\""); filled < n * sizeof *x && (d = digit(*at)) >= 0; at++) {
        held = held << 6 | (unsigned)d;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            bytes[filled++] = (unsigned char)(held >> bits);
        }
    }
    return filled == n * sizeof *x;
}

static void print_links(float attention[TOKENS][TOKENS])
{
    static const char *const words[TOKENS] = {"the", "cat", "sat", "on", "the", "mat"};

    for (int i = 0; i < TOKENS; i++) {
        int best = 0;
        for (int j = 1; j < TOKENS; j++)
            best = attention[i][j] > attention[i][best] ? j : best;
        printf("%s looks at %s: %.4f\n", words[i], words[best], (double)attention[i][best]);
    }
}

int main(int argc, char **argv)
{
    static const float x[TOKENS][WIDTH] = {
        {1, 0, 0, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1},
        {1, 1, 1, 0, 1, 0, 0, 0, -1, 1, -1, -1, -1, -1, -1, -1},
        {1, 2, 4, 0, 0, 1, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1},
        {1, 3, 9, 0, 0, 0, 1, 0, 1, -1, 1, 1, -1, -1, -1, -1},
        {1, 4, 16, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1},
        {1, 5, 25, 0, 1, 0, 0, 0, -1, -1, 1, -1, -1, -1, -1, -1},
    };
    char url[1024];
    float attention[TOKENS][TOKENS], outputs[TOKENS * WIDTH];
    double sum = 0;

    snprintf(url, sizeof url, "%s/v1/models/demo/attention",
             argc > 1 ? argv[1] : "http://127.0.0.1:8080");
    char *json = write_request(&x[0][0]);
    char *answer = json != NULL ? post(url, json) : NULL;
    free(json);
    if (answer == NULL)
        return 1;
    if (!read_tensor(&attention[0][0], TOKENS * TOKENS, answer, "attentions") ||
        !read_tensor(outputs, TOKENS * WIDTH, answer, "outputs")) {
        fprintf(stderr, "an answer without these tensors: %s\n", answer);
        free(answer);
        return 1;
    }
    free(answer);
    print_links(attention);
    for (int i = 0; i < TOKENS * WIDTH; i++)
        sum += (double)outputs[i];
    printf("outputs [%d,%d], sum %.4f\n", TOKENS, WIDTH, sum);
    return 0;
}
