#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base64.h"
#include "tests/reading.h"

#define INVALID "invalid"
#define SHAPE   "shape_mismatch"

/* --- nested arrays ---------------------------------------------------------------------------- */

static void nested_arrays_become_tensors(void **state)
{
    (void)state;
    reading_expect("{'inputs_embeds':[[[1,0],[0,1],[1,1]]]}", "inputs_embeds [1,3,2]: 1 0 0 1 1 1");
    reading_expect("{'inputs_embeds':[[1,0],[0,1]]}", "inputs_embeds [2,2]: 1 0 0 1");
    reading_expect(" { 'inputs_embeds' : [ [ -1.5e0 , 0.25 ] ,\n[ 3E+2 , 4 ] ] }\r\n\t ",
                   "inputs_embeds [2,2]: -1.5 0.25 300 4");
    reading_expect("{'query':[[[[1],[2]]],[[[3],[4]]]]}", "query [2,1,2,1]: 1 2 3 4");
    reading_expect("{'attention_mask':[[1,0,true],[false,1.0,0.0]]}",
                   "attention_mask [2,3]: 1 0 1 0 1 0");
    reading_expect("{'attention_mask':[[1,0,1,1],[-0,0e7,1e0,1.00]]}",
                   "attention_mask [2,4]: 1 0 1 1 0 0 1 1");
    reading_expect("{'attention_bias':[[0,'-inf',-1e9]]}", "attention_bias [1,3]: 0 -inf -1e+09");
    reading_expect("{'attention_bias':['\\u002dinf',2]}", "attention_bias [2]: -inf 2");
    reading_expect("{'lengths':[3,-1,9223372036854775807,-9223372036854775808]}",
                   "lengths [4]: 3 -1 9223372036854775807 -9223372036854775808");
    reading_expect("{}", "");
}

/* Long rows of 0 and 1 take a road of their own. */
static void rows_of_a_mask_may_hold_any_form_at_any_place(void **state)
{
    static const struct {
        const char *text;
        int value; /* -1 = refused */
    } forms[] = {{"1", 1},  {"0", 0},   {"true", 1}, {"1.0", 1}, {" 0", 0}, {"1 ", 1}, {"-0", 0},
                 {"2", -1}, {"01", -1}, {"11", -1},  {"-1", -1}, {"", -1},  {"[]", -1}};
    enum { ROW = 13 };

    (void)state;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        for (int at = 1; at < ROW; at++) {
            reading_text body = {NULL, 0}, want = {NULL, 0};
            reading_add(&body, "{'attention_mask':[");
            reading_add(&want, "attention_mask [2,%d]:", ROW);
            for (int i = 0; i < 2 * ROW; i++) {
                const char *digit = i % 3 == 0 ? "1" : "0";
                reading_add(&body, "%s%s",
                            i % ROW > 0 ? ","
                            : i > 0     ? "],["
                                        : "[",
                            i == ROW + at ? forms[f].text : digit);
                reading_add(&want, " %d", i == ROW + at ? forms[f].value : i % 3 == 0);
            }
            reading_add(&body, "]]}");
            char pointer[32];
            (void)snprintf(pointer, sizeof pointer, "/attention_mask/1/%d", at);
            if (forms[f].value < 0)
                reading_refuse(body.p, INVALID, pointer, "");
            else
                reading_expect(body.p, want.p);
            free(body.p);
            free(want.p);
        }
    }
}

static void a_field_of_min_rank_0_takes_a_bare_element(void **state)
{
    (void)state;
    reading_expect("{'causal_offset':-7}", "causal_offset []: -7");
    reading_expect("{'causal_offset':7 }", "causal_offset []: 7");
    reading_expect("{'causal_offset':[7,8],'layer':1}", "causal_offset [2]: 7 8; layer: 1");
    reading_expect("{'attention_bias':0.5}", "attention_bias []: 0.5");
    reading_expect("{'attention_bias':'-inf'}", "attention_bias []: -inf");
    reading_refuse("{'causal_offset':'7'}", INVALID, "/causal_offset", "found a string");
    reading_refuse("{'causal_offset':true}", INVALID, "/causal_offset", "found true");
    reading_refuse("{'causal_offset':1.5}", INVALID, "/causal_offset", "found 1.5");
    reading_refuse("{'causal_offset':[[1]]}", SHAPE, "/causal_offset", "rank 2, expected 0 to 1");
}

static void empty_arrays_have_the_shape_of_their_brackets(void **state)
{
    (void)state;
    reading_expect("{'inputs_embeds':[]}", "inputs_embeds [0,0,0] unknown:");
    reading_expect("{'inputs_embeds':[[]]}", "inputs_embeds [1,0,0] unknown:");
    reading_expect("{'inputs_embeds':[[],[]]}", "inputs_embeds [2,0,0] unknown:");
    reading_expect("{'inputs_embeds':[[[]]]}", "inputs_embeds [1,1,0]:");
    reading_expect("{'inputs_embeds':[[],[[]]]}", "inputs_embeds [2,1,0] lengths 0 1:");
    reading_expect("{'inputs_embeds':[[],[[1,0]]]}", "inputs_embeds [2,1,2] lengths 0 1: 1 0");
    reading_expect("{'inputs_embeds':[[[1,0]],[]]}", "inputs_embeds [2,1,2] lengths 1 0: 1 0");
    reading_expect("{'attention_mask':[]}", "attention_mask [0,0,0,0] unknown:");
    reading_expect("{'attention_mask':[[],[]]}", "attention_mask [2,0]:");
    reading_expect("{'attention_mask':[[[]],[[]]]}", "attention_mask [2,1,0]:");
    reading_expect("{'query':[[]]}", "query [1,0,0,0] unknown:");
    reading_expect("{'query':[[[[]]]]}", "query [1,1,1,0]:");
    reading_expect("{'lengths':[]}", "lengths [0]:");
    reading_expect("{'causal_offset':[]}", "causal_offset [0]:");
    reading_refuse("{'inputs_embeds':[[],[1,2]]}", INVALID, "/inputs_embeds/1",
                   "row has 2 numbers, the first has 0");
    reading_refuse("{'inputs_embeds':[[1,2],[]]}", INVALID, "/inputs_embeds/1",
                   "row has 0 numbers, the first has 2");
    reading_refuse("{'attention_mask':[[],[1]]}", INVALID, "/attention_mask/1",
                   "row has 1 numbers, the first has 0");
}

static void d10_ragged_batches_may_differ_in_tokens_and_in_nothing_else(void **state)
{
    (void)state;
    reading_expect("{'inputs_embeds':[[[1,2]],[[1,2],[3,4]]]}",
                   "inputs_embeds [2,2,2] lengths 1 2: 1 2 1 2 3 4");
    reading_expect("{'inputs_embeds':[[[1,2],[3,4]],[[5,6],[7,8]]]}",
                   "inputs_embeds [2,2,2]: 1 2 3 4 5 6 7 8");
    reading_refuse("{'inputs_embeds':[[[1,2],[3]]]}", INVALID, "/inputs_embeds/0/1",
                   "/inputs_embeds/0/1: row has 1 numbers, the first has 2");
    reading_refuse("{'inputs_embeds':[[[1,2]],[[3,4,5]]]}", INVALID, "/inputs_embeds/1/0",
                   "row has 3 numbers, the first has 2");
    reading_refuse("{'inputs_embeds':[[[1,2],[]]]}", INVALID, "/inputs_embeds/0/1",
                   "row has 0 numbers, the first has 2");
    reading_refuse("{'inputs_embeds':[[1,2],[3]]}", INVALID, "/inputs_embeds/1",
                   "row has 1 numbers, the first has 2");
    reading_refuse("{'attention_mask':[[1,0],[1]]}", INVALID, "/attention_mask/1",
                   "row has 1 numbers, the first has 2");
    reading_refuse("{'attention_mask':[[[1],[0]],[[1]]]}", INVALID, "/attention_mask/1",
                   "list has 1 items, the first has 2");
    reading_refuse("{'query':[[[[1,2]],[[1,2],[3,4]]]]}", INVALID, "/query/0/1",
                   "list has 2 items, the first has 1");
    reading_refuse("{'position_ids':[[0,1],[0]]}", INVALID, "/position_ids/1", "row has 1");
}

static void elements_at_mixed_depths_are_refused(void **state)
{
    (void)state;
    reading_refuse("{'inputs_embeds':[[1,[2]]]}", INVALID, "/inputs_embeds/0/1",
                   "expected a number, found an array");
    reading_refuse("{'inputs_embeds':[[[1],2]]}", INVALID, "/inputs_embeds/0/1",
                   "expected an array, found a number");
    reading_refuse("{'inputs_embeds':[[[1]],[2]]}", INVALID, "/inputs_embeds/1/0",
                   "expected an array, found a number");
    reading_refuse("{'inputs_embeds':[[],[[]],[1]]}", INVALID, "/inputs_embeds/2/0",
                   "expected an array, found a number");
    reading_refuse("{'attention_mask':[[true],[[true]]]}", INVALID, "/attention_mask/1/0",
                   "expected a number, found an array");
}

static void a_wrong_rank_is_a_shape_error(void **state)
{
    (void)state;
    reading_refuse("{'inputs_embeds':[1,2]}", SHAPE, "/inputs_embeds",
                   "inputs_embeds has rank 1, expected 2 to 3");
    reading_refuse("{'inputs_embeds':[[[[1]]]]}", SHAPE, "/inputs_embeds", "has rank 4");
    reading_refuse("{'inputs_embeds':[[[[]]]]}", SHAPE, "/inputs_embeds", "has rank 4");
    reading_refuse("{'query':[[[1]]]}", SHAPE, "/query", "query has rank 3, expected 4");
    reading_refuse("{'lengths':[[1]]}", SHAPE, "/lengths", "has rank 2, expected 1");
}

static void each_element_has_a_type_and_a_place(void **state)
{
    (void)state;
    reading_refuse("{'attention_mask':[[1,0,0.5]]}", INVALID, "/attention_mask/0/2",
                   "attention_mask holds 0.5; only 0, 1, true and false are allowed (1 = may "
                   "attend)");
    reading_refuse("{'attention_mask':[[1],[-1e9]]}", INVALID, "/attention_mask/1/0", "-1e9");
    reading_refuse("{'attention_mask':[[2]]}", INVALID, "/attention_mask/0/0", "holds 2;");
    reading_refuse("{'attention_mask':[[-1]]}", INVALID, "/attention_mask/0/0", "holds -1;");
    reading_refuse("{'attention_mask':[[10]]}", INVALID, "/attention_mask/0/0", "holds 10;");
    reading_refuse("{'attention_mask':[[1e1]]}", INVALID, "/attention_mask/0/0", "holds 1e1;");
    reading_refuse("{'attention_mask':[[1.0000000001]]}", INVALID, "/attention_mask/0/0", "holds");
    reading_refuse("{'attention_mask':[[1e-400]]}", INVALID, "/attention_mask/0/0", "holds");
    reading_refuse("{'attention_mask':[['1']]}", INVALID, "/attention_mask/0/0",
                   "expected 0, 1, true or false, found a string");
    reading_refuse("{'attention_mask':[[null]]}", INVALID, "/attention_mask/0/0", "found null");
    reading_refuse("{'lengths':[1,2.0]}", INVALID, "/lengths/1", "found 2.0");
    reading_refuse("{'lengths':[1,2e0]}", INVALID, "/lengths/1", "found 2e0");
    reading_refuse("{'lengths':[9223372036854775808]}", INVALID, "/lengths/0", "64 bits");
    reading_refuse("{'lengths':[-9223372036854775809]}", INVALID, "/lengths/0", "64 bits");
    reading_refuse("{'lengths':[99999999999999999999999]}", INVALID, "/lengths/0", "64 bits");
    reading_refuse("{'lengths':['1']}", INVALID, "/lengths/0",
                   "expected an integer, found a string");
    reading_refuse("{'inputs_embeds':[[true]]}", INVALID, "/inputs_embeds/0/0",
                   "expected a number, found true");
    reading_refuse("{'inputs_embeds':[[{}]]}", INVALID, "/inputs_embeds/0/0", "found an object");
    reading_refuse("{'inputs_embeds':[['-inf']]}", INVALID, "/inputs_embeds/0/0",
                   "expected a number, found a string");
    reading_refuse("{'attention_bias':[['-Infinity']]}", INVALID, "/attention_bias/0/0",
                   "\"-Infinity\" is not a number; the only string allowed is \"-inf\"");
    reading_refuse("{'attention_bias':['inf']}", INVALID, "/attention_bias/0", "\"inf\"");
    reading_refuse("{'attention_bias':['']}", INVALID, "/attention_bias/0", "\"\" is not");
    reading_refuse("{'attention_bias':[true]}", INVALID, "/attention_bias/0", "found true");
}

static void labels_are_kept_as_their_text(void **state)
{
    (void)state;
    reading_expect("{'tokens':['a','b']}", "tokens [2]: [\"a\",\"b\"]");
    reading_expect("{'tokens':[['a','\\u00e9\\n'],[ 'c' ],[]]}",
                   "tokens [3,2] lengths 2 1 0: [[\"a\",\"\\u00e9\\n\"],[ \"c\" ],[]]");
    reading_expect("{'tokens':[['x'],['y']] ,'layer':2}",
                   "tokens [2,1] lengths 1 1: [[\"x\"],[\"y\"]]; layer: 2");
    reading_expect("{'tokens':[[\"\xe4\xb8\xad\xf0\x9f\x91\xa9\"]]}",
                   "tokens [1,1] lengths 1: [[\"\xe4\xb8\xad\xf0\x9f\x91\xa9\"]]");
    reading_expect("{'tokens':[[]]}", "tokens [1,0] lengths 0: [[]]");
    reading_expect("{'tokens':[]}", "tokens [0,0]: []");
    reading_refuse("{'tokens':['a',1]}", INVALID, "/tokens/1", "expected a string, found a number");
    reading_refuse("{'tokens':['a',['b']]}", INVALID, "/tokens/1",
                   "expected a string, found an array");
    reading_refuse("{'tokens':[[['a']]]}", SHAPE, "/tokens", "rank 3");
    reading_refuse("{'tokens':'a'}", INVALID, "/tokens",
                   "expected arrays of strings, found a string");
    reading_refuse("{'tokens':{}}", INVALID, "/tokens", "found an object");
    reading_refuse("{'tokens':[\"\xff\"]}", INVALID, "/tokens/0", "invalid UTF-8");
}

/* --- members ---------------------------------------------------------------------------------- */

static void values_go_to_jansson(void **state)
{
    (void)state;
    reading_expect("{'layer':3}", "layer: 3");
    reading_expect("{'layer':3,'scale':-0.5e1}", "layer: 3; scale: -5");
    reading_expect("{'layer':true,'scale':false }", "layer: true; scale: false");
    reading_expect("{'layer':'a\\\"}]b'}", "layer: \"a\"}]b\"");
    reading_expect("{'return_attentions':{'heads':[1,{'a':[true,null]}],'x':{}},'layer':0}",
                   "layer: 0; return_attentions: an object of 2");
    reading_expect("{'return_attentions':[ 1 , 2 ] }", "return_attentions: an array of 2");
    reading_refuse("{'scale':1e400}", INVALID, "/scale", "scale");
    reading_refuse("{'scale':[1,01]}", INVALID, "/scale", "at byte 13");
}

static void an_option_may_be_null(void **state)
{
    (void)state;
    reading_expect("{'user':null}", "");
    reading_expect("{'user' : null ,'layer':3}", "layer: 3");
    reading_expect("{'layer':3,'user':'null'}", "layer: 3; user: \"null\"");
    reading_refuse("{'user':null,'user':null}", INVALID, "/user", "duplicate");
    reading_refuse("{'user':nul}", INVALID, "/user", "at byte");
    reading_refuse("{'layer':null}", INVALID, "/layer", "found null");
}

static void names_are_known_or_refused_with_the_nearest(void **state)
{
    (void)state;
    reading_refuse("{'input_embeds':[[1]]}", INVALID, "/input_embeds",
                   "unknown field \"input_embeds\"; did you mean \"inputs_embeds\"?");
    reading_refuse("{'layr':1}", INVALID, "/layr", "did you mean \"layer\"?");
    reading_refuse("{'zzz':1}", INVALID, "/zzz", "unknown field \"zzz\"");
    reading_refuse("{'':1}", INVALID, "/", "unknown field \"\"");
    reading_refuse("{'a/b~c':1}", INVALID, "/a~1b~0c", "unknown field \"a/b~c\"");
    reading_refuse("{'layer\\n':1}", INVALID, "/layer\n", "unknown field \"layer?\"");
    reading_expect("{'\\u006cayer':4}", "layer: 4");
    reading_expect("{'l\\u0061y\\u0065r':4}", "layer: 4");
}

static void a_long_name_is_cut_between_characters(void **state)
{
    (void)state;
    for (size_t lead = 0; lead < 4; lead++) {
        char body[600] = "{\"xxx";
        char *p = body + 2 + lead;
        for (int i = 0; i < 60; i++, p += 4)
            memcpy(p, "\xf0\x9f\x98\x80", 4);
        memcpy(p, "\":1}", 5);
        char *told = reading_all_ways(body, strlen(body));
        assert_int_equal(strncmp(told, "invalid /", 9), 0);
        assert_non_null(strstr(told, "unknown field"));
        assert_non_null(strstr(told, "...\""));
        size_t left = 0; /* continuation bytes due */
        for (const char *c = told; *c != '\0'; c++) {
            bool continues = ((unsigned char)*c & 0xC0) == 0x80;
            assert_int_equal(continues, left > 0);
            left = continues ? left - 1 : (unsigned char)*c == 0xF0 ? 3 : 0;
        }
        assert_int_equal(left, 0);
        free(told);
    }
}

static void a_name_of_odd_bytes_stays_inside_the_pointer(void **state)
{
    srv_json_reader *r = NULL;
    attn_error err = {0};
    char name[512];

    (void)state;
    memset(name, 0x85, sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(srv_json_reader_new(&r, reading_fields, reading_num_fields, NULL, NULL, NULL),
                     ATTN_OK);
    assert_int_equal(srv_json_reader_member(r, name, "1", 1, &err), ATTN_EINVAL);
    assert_true(strlen(err.pointer) < sizeof err.pointer);
    srv_json_reader_free(r);
}

static void d11_duplicate_names_are_refused_at_every_level(void **state)
{
    (void)state;
    reading_refuse("{'inputs_embeds':[[[1,2]]],'inputs_embeds':[[[3,4]]]}", INVALID,
                   "/inputs_embeds", "duplicate field \"inputs_embeds\"");
    reading_refuse("{'layer':1,'\\u006cayer':1}", INVALID, "/layer", "duplicate field \"layer\"");
    reading_refuse("{'return_attentions':{'heads':'all','heads':[0]}}", INVALID,
                   "/return_attentions", "heads");
    reading_refuse("{'query':{'shape':[1],'shape':[1]}}", INVALID, "/query/shape",
                   "duplicate member \"shape\"");
}

static void d13_wrong_types_are_named(void **state)
{
    (void)state;
    reading_refuse("{'inputs_embeds':'x'}", INVALID, "/inputs_embeds",
                   "/inputs_embeds: expected nested arrays of numbers, found a string");
    reading_refuse("{'inputs_embeds':null}", INVALID, "/inputs_embeds",
                   "expected nested arrays of numbers, found null");
    reading_refuse("{'inputs_embeds':5}", INVALID, "/inputs_embeds", "found a number");
    reading_refuse("{'inputs_embeds':true}", INVALID, "/inputs_embeds", "found true");
    reading_refuse("{'inputs_embeds':[[['1.0']]]}", INVALID, "/inputs_embeds/0/0/0",
                   "expected a number, found a string");
    reading_refuse("{'attention_mask':5}", INVALID, "/attention_mask", "found a number");
    reading_refuse("null", INVALID, "", "the body must be a JSON object, not null");
    reading_refuse("[]", INVALID, "", "not an array");
    reading_refuse("5", INVALID, "", "not a number");
    reading_refuse("true", INVALID, "", "not true or false");
    reading_refuse(" 'x'", INVALID, "", "at byte 1: the body must be a JSON object, not a string");
}

/* --- numbers ---------------------------------------------------------------------------------- */

static void d01_nan_and_infinity_are_not_json(void **state)
{
    (void)state;
    reading_refuse("{'inputs_embeds':[[[NaN,1]]]}", INVALID, "/inputs_embeds/0/0/0",
                   "NaN and Infinity are not JSON");
    reading_refuse("{'inputs_embeds':[[[1,Infinity]]]}", INVALID, "/inputs_embeds/0/0/1",
                   "NaN and Infinity are not JSON");
    reading_refuse("{'inputs_embeds':[[[-Infinity,1]]]}", INVALID, "/inputs_embeds/0/0/0",
                   "NaN and Infinity are not JSON");
    reading_refuse("{'inputs_embeds':[[[nan,1]]]}", INVALID, "/inputs_embeds/0/0/0",
                   "at byte 21: expected true, false or null");
    reading_refuse("{'inputs_embeds':[[[inf,1]]]}", INVALID, "/inputs_embeds/0/0/0",
                   "expected a value, found 'i'");
    reading_refuse("{'inputs_embeds':[[['NaN',1]]]}", INVALID, "/inputs_embeds/0/0/0",
                   "expected a number, found a string");
    reading_refuse("{'scale':NaN}", INVALID, "/scale", "NaN and Infinity are not JSON");
}

static void d02_numbers_beyond_float32_are_refused_where_they_stand(void **state)
{
    (void)state;
    reading_refuse("{'inputs_embeds':[[[1e400,0]]]}", INVALID, "/inputs_embeds/0/0/0",
                   "/inputs_embeds/0/0/0: 1e400 is not finite as float32");
    reading_refuse("{'inputs_embeds':[[[1,2],[3,-1e400]]]}", INVALID, "/inputs_embeds/0/1/1",
                   "-1e400 is not finite");
    reading_refuse("{'inputs_embeds':[[[1e999999999]]]}", INVALID, "/inputs_embeds/0/0/0",
                   "1e999999999 is not finite");
    reading_refuse("{'attention_bias':3.4028236e38}", INVALID, "/attention_bias", "not finite");
    reading_expect("{'inputs_embeds':[[3.4028235e38,-3.4028235677973366e38]]}",
                   "inputs_embeds [1,2]: 3.40282347e+38 -3.40282347e+38");
}

static void d03_tiny_numbers_are_rounded(void **state)
{
    (void)state;
    reading_expect("{'inputs_embeds':[[1.8011670033376514e-308,4.9e-324,1e-40,1e-46,-1e-400]]}",
                   "inputs_embeds [1,5]: 0 0 9.9999461e-41 0 -0");
}

static void d06_d07_ordinary_decimals_and_large_integers_round_to_nearest(void **state)
{
    (void)state;
    reading_expect("{'inputs_embeds':[[[0.96,1.24]]]}",
                   "inputs_embeds [1,1,2]: 0.959999979 1.24000001");
    reading_expect("{'inputs_embeds':[[17000000000000000000,1,9007199254740993,16777217]]}",
                   "inputs_embeds [1,4]: 1.70000001e+19 1 9.00719925e+15 16777216");
}

static void d14_the_grammar_of_numbers_is_json_s(void **state)
{
    static const char *const bad[] = {"01",  "-01", ".5",   "1.",   "+1",   "0x10", "1e",
                                      "1e+", "-",   "1.e1", "1..2", "1e1.", "--1",  "1_0",
                                      "1f",  "0b1", "00",   "-.5",  "1e-",  "1 2",  "0.1.2"};
    static const char *const fields[] = {"'inputs_embeds':[[[0,", "'attention_mask':[[0,",
                                         "'lengths':[0,", "'return_attentions':[0,"};

    (void)state;
    for (size_t f = 0; f < 4; f++) {
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            char body[100];
            (void)snprintf(body, sizeof body, "{%s%s]]]}", fields[f], bad[i]);
            for (char *q = strchr(body, '\''); q != NULL; q = strchr(body, '\''))
                *q = '"';
            char *told = reading_all_ways(body, strlen(body));
            if (strncmp(told, "invalid /", 9) != 0)
                fail_msg("%s: %s", body, told);
            free(told);
        }
    }
    reading_expect("{'inputs_embeds':[[1e+01,1E1,-0,0.0,-0.0e-0]]}",
                   "inputs_embeds [1,5]: 10 10 -0 0 -0");
    reading_refuse("{'inputs_embeds':[[01]]}", INVALID, "/inputs_embeds/0/0",
                   "at byte 20: a number may not begin with a 0 and more digits");
}

static void a_very_long_number_is_exact(void **state)
{
    enum { LONG = 5000 };
    char *body = malloc(LONG + 100);

    (void)state;
    assert_non_null(body);
    size_t n = (size_t)sprintf(body, "{\"inputs_embeds\":[[0.");
    memset(body + n, '0', LONG);
    (void)sprintf(body + n + LONG, "25e%d,1]]}", LONG);
    for (size_t piece = 1; piece < 40; piece += 7) {
        char *told = reading_in_pieces(body, strlen(body), 30, piece);
        assert_string_equal(told, "inputs_embeds [1,2]: 0.25 1");
        free(told);
    }
    free(body);
}

/* --- the document ----------------------------------------------------------------------------- */

static void d14_commas_brackets_and_trailing_text(void **state)
{
    (void)state;
    reading_refuse("{'inputs_embeds':[[1,]]}", INVALID, "/inputs_embeds/0/1", "expected a value");
    reading_refuse("{'inputs_embeds':[[1],]}", INVALID, "/inputs_embeds/1", "expected a value");
    reading_refuse("{'inputs_embeds':[,[1]]}", INVALID, "/inputs_embeds/0", "expected a value");
    reading_refuse("{'inputs_embeds':[[1,,2]]}", INVALID, "/inputs_embeds/0/1", "expected a value");
    reading_refuse("{'inputs_embeds':[[1}]}", INVALID, "/inputs_embeds/0/1",
                   "expected ',' or ']', found '}'");
    reading_refuse("{'layer':1,}", INVALID, "", "expected a name in quotes, found '}'");
    reading_refuse("{,'layer':1}", INVALID, "", "expected a name in quotes");
    reading_refuse("{'layer' 1}", INVALID, "/layer", "expected ':'");
    reading_refuse("{'layer':}", INVALID, "/layer", "expected a value, found '}'");
    reading_refuse("{'layer':1]", INVALID, "", "expected ',' or '}'");
    reading_refuse("{layer:1}", INVALID, "", "expected a name in quotes, found 'l'");
    reading_refuse("{'layer':1 'scale':2}", INVALID, "", "expected ',' or '}'");
    reading_refuse("{'layer':tru}", INVALID, "/layer", "expected true, false or null");
    reading_refuse("{'layer':truee}", INVALID, "", "expected ',' or '}', found 'e'");
    reading_refuse("{'layer':True}", INVALID, "/layer", "expected a value, found 'T'");
    reading_refuse("{} x", INVALID, "", "at byte 3: expected nothing behind the JSON object");
    reading_refuse("{}{}", INVALID, "", "expected nothing behind the JSON object");
    reading_refuse("{}]", INVALID, "", "expected nothing behind the JSON object");
    reading_refuse("{}//", INVALID, "", "expected nothing");
    reading_expect("{}\n \r\t", "");
    reading_expect("\n \r\t{'layer':1}\n", "layer: 1");
}

static void a_body_that_is_cut_is_refused(void **state)
{
    static const char body[] = "{\"inputs_embeds\":[[1,\"x\"" /* never reached whole */;

    (void)state;
    reading_refuse("{", INVALID, "", "the body ends at byte 1, before its JSON object is complete");
    reading_refuse("{'lay", INVALID, "", "the body ends at byte 5, inside a string");
    reading_refuse("{'layer':1", INVALID, "/layer", "ends at byte 10");
    reading_refuse("{'inputs_embeds':[[1,2],[3", INVALID, "/inputs_embeds/1/0", "ends at byte 26");
    reading_refuse("{'layer':tr", INVALID, "/layer", "ends at byte 11");
    for (size_t n = 1; n + 4 < sizeof body; n++) {
        char *told = reading_in_pieces(body, n, n, 1);
        assert_non_null(strstr(told, "the body ends at byte"));
        free(told);
    }
}

static void expect_raw(const char *text, size_t n, const char *says)
{
    char *told = reading_all_ways(text, n);

    if (strncmp(told, "invalid ", 8) != 0 || strstr(told, says) == NULL)
        fail_msg("%s: wants %s", told, says);
    free(told);
}

static void d12_bom_nul_bytes_utf_16_and_empty_bodies_are_refused(void **state)
{
    (void)state;
    expect_raw("", 0, "the body is empty");
    expect_raw(" \n\t ", 4, "the body holds nothing but blanks");
    expect_raw("\xef\xbb\xbf{}", 5, "a byte order mark");
    expect_raw("\xff\xfe{\0}\0", 6, "UTF-16");
    expect_raw("\xfe\xff\0{\0}", 6, "UTF-16");
    expect_raw("{\0}\0", 4, "at byte 1: expected a name in quotes, found a NUL byte");
    expect_raw("\0{\0}", 4, "at byte 0: expected a JSON object, found a NUL byte");
    expect_raw("{}\0", 3, "found a NUL byte");
    expect_raw("{\"layer\":\"a\0b\"}", 15, "found a NUL byte");
    expect_raw("{\"inputs_embeds\":[[1,\0002]]}", 25, "found a NUL byte");
    expect_raw("\x01{}", 3, "found byte 0x01");
    reading_refuse("{'a\\u0000':1}", INVALID, "", "\\u0000 is not accepted");
    reading_refuse("{'layer':'\\u0000'}", INVALID, "/layer", "\\u0000 is not accepted");
}

static void strings_are_strict(void **state)
{
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xe4\xb8",
                                      "\xc3x",
                                      "\\x",
                                      "\\u12g4",
                                      "\\ud800",
                                      "\\ud800x",
                                      "\\ud800\\n",
                                      "\\udc00",
                                      "\\ud800\\ud800",
                                      "\\'\\",
                                      "\n",
                                      "\t"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[64];
        (void)snprintf(body, sizeof body, "{'layer':'%s'}", bad[i]);
        reading_refuse(body, INVALID, "/layer", "t byte");
    }
    reading_expect("{'layer':'\\ud83d\\ude00\\u00E9\\/\\\\'}",
                   "layer: \"\xf0\x9f\x98\x80\xc3\xa9/\\\"");
    reading_expect("{'layer':'\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\x7f'}",
                   "layer: \"\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\x7f\"");
}

static char *repeat(const char *head, const char *what, size_t times)
{
    size_t n = strlen(head), m = strlen(what);
    char *text = malloc(n + m * times + 1);

    assert_non_null(text);
    memcpy(text, head, n);
    for (size_t i = 0; i < times; i++)
        memcpy(text + n + i * m, what, m);
    text[n + m * times] = '\0';
    return text;
}

static void d09_deep_nesting_is_refused_at_the_depth_that_is_allowed(void **state)
{
    static const struct {
        const char *head, *says;
    } heads[] = {{"{\"inputs_embeds\":",
                  "/inputs_embeds/0/0/0/0/0/0/0/0 | /inputs_embeds/0/0/0/0/0/0/0/0: "
                  "expected arrays nested at most 8 deep"},
                 {"{\"attention_mask\":", "/attention_mask/0"},
                 {"{\"lengths\":", "/lengths/0"},
                 {"{\"tokens\":", "/tokens/0"},
                 {"{\"return_attentions\":", "/return_attentions | at byte 85: nested deeper"},
                 {"{\"query\":{\"shape\":", "/query/shape/0"},
                 {"{\"nonsense\":", "/nonsense"},
                 {"", " | at byte 0"}};
    static const size_t times[] = {2048, 2049, 1000000};

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        for (size_t k = 0; k < 3; k++) {
            char *text = repeat(heads[i].head, "[", times[k]);
            clock_t began = clock();
            char *told = reading_in_pieces(text, strlen(text), strlen(text), 1);
            assert_true(clock() - began < CLOCKS_PER_SEC / 2);
            if (strncmp(told, "invalid ", 8) != 0 || strstr(told, heads[i].says) == NULL)
                fail_msg("%s: %s", heads[i].head, told);
            free(told);
            free(text);
        }
    }
    char *deep = repeat("{\"return_attentions\":", "[", 64);
    char *closed = repeat(deep, "]", 64);
    char *body = repeat(closed, "}", 1);
    char *told = reading_in_pieces(body, strlen(body), 10, 7);
    assert_string_equal(told, "return_attentions: an array of 1");
    free(told);
    free(deep);
    free(closed);
    free(body);
    char *objects = repeat("{\"return_attentions\":", "{\"a\":", 70);
    told = reading_all_ways(objects, strlen(objects));
    assert_non_null(strstr(told, "nested deeper than 64 levels"));
    free(told);
    free(objects);
}

/* --- memory ----------------------------------------------------------------------------------- */

typedef struct {
    size_t now, most, limit;
} ledger;

static attn_status charge(void *arg, ptrdiff_t bytes, attn_error *err)
{
    ledger *l = arg;

    if (bytes > 0 && l->now + (size_t)bytes > l->limit)
        return attn_fail(err, ATTN_ETOOBIG, "over the limit");
    l->now += (size_t)bytes;
    l->most = l->now > l->most ? l->now : l->most;
    return ATTN_OK;
}

static attn_status read_charged(const char *text, size_t n, ledger *l, attn_error *err)
{
    srv_json_reader *r = NULL;
    attn_status rc = srv_json_reader_new(&r, reading_fields, reading_num_fields, charge, l, err);

    for (size_t at = 0; rc == ATTN_OK && at < n; at += 32768)
        rc = srv_json_reader_feed(r, text + at, n - at < 32768 ? n - at : 32768, err);
    if (rc == ATTN_OK)
        rc = srv_json_reader_finish(r, err);
    assert_int_equal(l->now, srv_json_reader_charged(r));
    srv_json_reader_free(r);
    assert_int_equal(l->now, 0);
    return rc;
}

static void d15_the_worst_texts_stay_within_what_is_charged(void **state)
{
    static const struct {
        const char *head, *what;
        attn_status rc; /* of the text that never ends, without a limit */
    } texts[] = {{"{\"inputs_embeds\":[[", "0,", ATTN_EINVAL},
                 {"{\"inputs_embeds\":[", "[],", ATTN_EINVAL},
                 {"{\"inputs_embeds\":[[", "{},", ATTN_EINVAL},
                 {"{\"attention_mask\":[[", "0,", ATTN_EINVAL},
                 {"{\"lengths\":[", "0,", ATTN_EINVAL},
                 {"{\"tokens\":[", "[],", ATTN_EINVAL},
                 {"{\"tokens\":[", "\"\",", ATTN_EINVAL},
                 {"{\"return_attentions\":[", "{},", ATTN_EINVAL},
                 {"{\"unused\":[", "0,", ATTN_EINVAL},
                 {"{\"unused\":[", "[],", ATTN_EINVAL}};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *text = repeat(texts[i].head, texts[i].what, 10000000 / strlen(texts[i].what));
        ledger free_hand = {0, 0, SIZE_MAX}, tight = {0, 0, 1 << 20};
        attn_error err = {0};
        assert_int_equal(read_charged(text, strlen(text), &free_hand, &err), texts[i].rc);
        assert_true(free_hand.most <= 8 * strlen(text));
        attn_error over = {0};
        attn_status rc = read_charged(text, strlen(text), &tight, &over);
        assert_int_equal(rc, free_hand.most > tight.limit ? ATTN_ETOOBIG : ATTN_EINVAL);
        assert_true(tight.most <= tight.limit);
        free(text);
    }
}

static void d15_a_tree_is_charged_before_it_is_made(void **state)
{
    char *list = repeat("{\"return_attentions\":[{}", ",{}", 10000);
    char *body = repeat(list, "]}", 1);
    ledger enough = {0, 0, 80 * 31000}, tight = {0, 0, 80 * 29000};

    (void)state;
    assert_int_equal(read_charged(body, strlen(body), &enough, NULL), ATTN_OK);
    assert_true(enough.most >= 80 * 30000);
    assert_int_equal(read_charged(body, strlen(body), &tight, NULL), ATTN_ETOOBIG);
    free(list);
    free(body);
}

static void a_value_may_have_four_mebibytes_and_not_one_more(void **state)
{
    static const char head[] = "{\"layer\":\"";
    static const size_t pieces[] = {SIZE_MAX, 4096, 1000003};

    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        char *text = repeat(head, "x", SRV_VALUE_BYTES - 2 + extra);
        char *body = repeat(text, "\"}", 1);
        size_t n = strlen(body);
        for (size_t k = 0; k < 3; k++) {
            char *told = reading_in_pieces(body, n, 0, pieces[k]);
            assert_int_equal(strncmp(told, "layer: ", 7) == 0, extra == 0);
            if (extra)
                assert_string_equal(told, "invalid /layer | /layer: longer than 4194304 bytes of "
                                          "JSON");
            free(told);
        }
        free(text);
        free(body);
    }
}

static void large_arrays_grow_and_are_charged_to_the_byte(void **state)
{
    enum { ROWS = 1000, WIDTH = 300 };
    char *text = malloc(ROWS * WIDTH * 16), *p = text;
    ledger l = {0, 0, SIZE_MAX};
    srv_json_reader *r = NULL;
    size_t n;

    (void)state;
    assert_non_null(text);
    p += sprintf(p, "{\"inputs_embeds\":[");
    for (size_t i = 0; i < ROWS; i++) {
        p += sprintf(p, "%s[", i == 0 ? "" : ", ");
        for (size_t j = 0; j < WIDTH; j++)
            p += sprintf(p, "%s%zu.%zu", j == 0 ? "" : j % 2 ? "," : ", ", i, j % 10);
        p += sprintf(p, "]");
    }
    n = (size_t)(p - text) + (size_t)sprintf(p, "]}");
    assert_int_equal(srv_json_reader_new(&r, reading_fields, reading_num_fields, charge, &l, NULL),
                     ATTN_OK);
    for (size_t at = 0; at < n; at += 1021)
        assert_int_equal(srv_json_reader_feed(r, text + at, n - at < 1021 ? n - at : 1021, NULL),
                         ATTN_OK);
    assert_int_equal(srv_json_reader_finish(r, NULL), ATTN_OK);
    const srv_array *a = srv_json_reader_array(r, 0);
    assert_int_equal(a->count, ROWS * WIDTH);
    assert_int_equal(a->dim[0], ROWS);
    assert_int_equal(a->dim[1], WIDTH);
    assert_int_equal(l.now, sizeof(float) * ROWS * WIDTH);
    assert_int_equal(srv_array_bytes(a), l.now);
    assert_true(l.most < 2 * l.now);
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < WIDTH; j++) {
            char want[32];
            (void)snprintf(want, sizeof want, "%zu.%zu", i, j % 10);
            assert_true(a->data.f32[i * WIDTH + j] == strtof(want, NULL));
        }
    }
    srv_json_reader_free(r);
    srv_json_reader_free(NULL);
    free(text);
}

static void a_refused_charge_ends_the_request_with_its_own_status(void **state)
{
    static const char *const bodies[] = {"{\"inputs_embeds\":[[1,2]]}",
                                         "{\"attention_mask\":[[1]]}",
                                         "{\"tokens\":[\"a\"]}",
                                         "{\"layer\":1}",
                                         "{\"query\":{\"data\":\"AAAA\"}}",
                                         "{\"inputs_embeds\":[[]]}",
                                         "{\"causal_offset\":1}",
                                         "{\"layer\":true}"};

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        ledger nothing = {0, 0, 0};
        attn_error err = {0};
        assert_int_equal(read_charged(bodies[i], strlen(bodies[i]), &nothing, &err), ATTN_ETOOBIG);
        assert_string_equal(err.text, "over the limit");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_arrays_become_tensors),
        cmocka_unit_test(rows_of_a_mask_may_hold_any_form_at_any_place),
        cmocka_unit_test(a_field_of_min_rank_0_takes_a_bare_element),
        cmocka_unit_test(empty_arrays_have_the_shape_of_their_brackets),
        cmocka_unit_test(d10_ragged_batches_may_differ_in_tokens_and_in_nothing_else),
        cmocka_unit_test(elements_at_mixed_depths_are_refused),
        cmocka_unit_test(a_wrong_rank_is_a_shape_error),
        cmocka_unit_test(each_element_has_a_type_and_a_place),
        cmocka_unit_test(labels_are_kept_as_their_text),
        cmocka_unit_test(values_go_to_jansson),
        cmocka_unit_test(an_option_may_be_null),
        cmocka_unit_test(names_are_known_or_refused_with_the_nearest),
        cmocka_unit_test(a_long_name_is_cut_between_characters),
        cmocka_unit_test(a_name_of_odd_bytes_stays_inside_the_pointer),
        cmocka_unit_test(d11_duplicate_names_are_refused_at_every_level),
        cmocka_unit_test(d13_wrong_types_are_named),
        cmocka_unit_test(d01_nan_and_infinity_are_not_json),
        cmocka_unit_test(d02_numbers_beyond_float32_are_refused_where_they_stand),
        cmocka_unit_test(d03_tiny_numbers_are_rounded),
        cmocka_unit_test(d06_d07_ordinary_decimals_and_large_integers_round_to_nearest),
        cmocka_unit_test(d14_the_grammar_of_numbers_is_json_s),
        cmocka_unit_test(a_very_long_number_is_exact),
        cmocka_unit_test(d14_commas_brackets_and_trailing_text),
        cmocka_unit_test(a_body_that_is_cut_is_refused),
        cmocka_unit_test(d12_bom_nul_bytes_utf_16_and_empty_bodies_are_refused),
        cmocka_unit_test(strings_are_strict),
        cmocka_unit_test(d09_deep_nesting_is_refused_at_the_depth_that_is_allowed),
        cmocka_unit_test(d15_the_worst_texts_stay_within_what_is_charged),
        cmocka_unit_test(d15_a_tree_is_charged_before_it_is_made),
        cmocka_unit_test(a_value_may_have_four_mebibytes_and_not_one_more),
        cmocka_unit_test(large_arrays_grow_and_are_charged_to_the_byte),
        cmocka_unit_test(a_refused_charge_ends_the_request_with_its_own_status)};
    return cmocka_run_group_tests_name("json_reader", tests, NULL, NULL);
}
