/* Dictionaries and fences around code: what is unwrapped, and what is left alone to the byte. */
#include "gateway/unwrap.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static bool known(void *data, const char *name)
{
    static const char *const names[] = {"python", "py", "python3", "bash", "c++", "javascript"};

    (void)data;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcasecmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

struct example {
    const char *text, *code, *language;
};

static void check_bytes(const char *text, size_t length, const char *code, size_t code_length, const char *language)
{
    struct unwrapped found = {0};

    assert_int_equal(unwrap_code(text, length, known, NULL, &found), 0);
    if (found.length != code_length || memcmp(found.code, code, code_length) != 0 ||
        strcmp(found.language, language) != 0)
        fail_msg("<<%s>> gave <<%s>> in \"%s\", not <<%s>> in \"%s\"", text, found.code, found.language, code,
                 language);
    assert_int_equal(found.code[found.length], '\0');
    free(found.code);
}

static void check(const struct example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_bytes(examples[i].text, strlen(examples[i].text), examples[i].code, strlen(examples[i].code),
                    examples[i].language);
}

static void check_same(const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_bytes(texts[i], strlen(texts[i]), texts[i], strlen(texts[i]), "");
}

static void test_dictionaries_are_opened_in_python_and_json_quoting(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{'generated_code': 'print(\"Hello from dict format\")'}", "print(\"Hello from dict format\")", ""},
        {"{\"generated_code\": \"print('a')\\nprint('b')\"}", "print('a')\nprint('b')", ""},
        {"{'code': 'x'}", "x", ""},
        {" \n\t{ 'code' : 'x' , }\n ", "x", ""},
        {"{'code': 'c', 'generated_code': 'g'}", "g", ""},
        {"{'generated_code': None, 'code': 'c'}", "c", ""},
        {"{'code': 'a', 'code': 'b'}", "b", ""},
        {"{'generated_code': ''}", "", ""},
        {"{'code': 'a' \"b\" r'\\n'}", "ab\\n", ""},
        {"{'code': ('a\\n'\n         'b\\n')}", "a\nb\n", ""},
        {"{'code': (('x'))}", "x", ""},
        {"{'co' 'de': u'x'}", "x", ""},
        {"{'code': '''a'b\"c\n''d'''}", "a'b\"c\n''d", ""},
        {"{'code': \"\"\"a\"\"b\"\"\"}", "a\"\"b", ""},
        {"{'code': '''a\r\nb\rc'''}", "a\nb\nc", ""},
        {"{'code': R'a\\'b'}", "a\\'b", ""},
        {"{  # why\n 'code': \\\n 'x'  # because\n}  # end", "x", ""},
        {"{\"code\": \"x\", \"a\": true, \"b\": null, \"c\": [1, {\"d\": -2.5e3}]}", "x", ""},
        {"{'code': 'x', 'a': True, 'b': None, 'c': (1, [.5, 1.]), 'd': {'e': {}}, 'f': ()}", "x", ""},
        {"{'code': 'x', 'timeout': 99999}", "x", ""},
    };
    check(examples, COUNT_OF(examples));
}

static void test_every_escape_of_a_string_is_decoded(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{'code': '\\\\ \\' \\\" \\a\\b\\f\\n\\r\\t\\v'}", "\\ ' \" \a\b\f\n\r\t\v", ""},
        {"{'code': '\\x41\\x7f\\xe9'}", "A\x7f\u00e9", ""},
        {"{'code': '\\101\\60\\7z\\777\\1234'}",
         "A0\az\u01ff"
         "S4",
         ""},
        {"{'code': '\\u00e9\\u20ac\\U0001F600'}", "\u00e9\u20ac\U0001F600", ""},
        {"{\"code\": \"\\ud83d\\ude00\"}", "\U0001F600", ""},
        {"{'code': 'a\\\nb\\\r\nc'}", "abc", ""},
        {"{'code': '\\d\\q'}", "\\d\\q", ""},
        {"{\"code\": \"\\/\"}", "/", ""},
        {"{'code': '\\/'}", "\\/", ""},
        {"{'code': '\u00e9\U0001F600'}", "\u00e9\U0001F600", ""},
        /* These stay, and mean the same in the code's own string. */
        {"{'code': 'print(\"\\N{BULLET}\")'}", "print(\"\\N{BULLET}\")", ""},
        {"{'code': '\\ud800x'}", "\\ud800x", ""},
        {"{'code': '\\ude00\\ud83d'}", "\\ude00\\ud83d", ""},
        {"{'code': '\\ud83d\\ud83d\\ude00'}", "\\ud83d\U0001F600", ""},
        {"{'code': '\\U0000d800'}", "\\U0000d800", ""},
    };
    check(examples, COUNT_OF(examples));
    static const char nul[] = "{'code': 'a\\x00b\\0'}";
    check_bytes(nul, strlen(nul), "a\0b\0", 4, "");
}

static void test_what_is_no_such_dictionary_is_left_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "{}",
        "{'a': 1}",
        "{'code': 1}",
        "{'code': b'x'}",
        "{'code': f'x'}",
        "{'code': 'x' b'y'}",
        "{'code': ('x',)}",
        "{'code': ['x']}",
        "{'code': 'x'",
        "{'code': 'x}",
        "{'code': 'x\ny'}",
        "{'code': '''x'}",
        "{'code' 'x'}",
        "{'code': 'x' 'a': 1}",
        "{'code': 'x',, 'a': 1}",
        "{, 'code': 'x'}",
        "{'code': 'x', 1: 2}",
        "{'code': 'x', 'a': {1, 2}}",
        "{'code': 'x', 'a': 0x10}",
        "{'code': 'x', 'a': 007}",
        "{'code': 'x', 'a': 1j}",
        "{'code': 'x', 'a': y}",
        "{'code': 'x', 'a': Trueish}",
        "{'code': 'x', 'a': --1}",
        "{'code': 'x', 'a': -}",
        "{'code': 'x', 'a': [1 2]}",
        "{'code': '\\x4'}",
        "{'code': '\\u12g4'}",
        "{'code': '\\U00110000'}",
        "{'code': '\\N'}",
        "{'code': '\\N{}'}",
        "{'code': '\\N{BULLET'}",
        "{'code': 'x'}.get('code')",
        "{'code': 'x'} {'code': 'y'}",
        "print({'code': 'x'})",
        "d = {'generated_code': 'x'}",
        "{'code': 'x'[0]}",
        "{\n  echo 'code'\n}",
    };
    check_same(texts, COUNT_OF(texts));
    static const char nul[] = "{'code': 'x\0'}";
    check_bytes(nul, sizeof(nul) - 1, nul, sizeof(nul) - 1, "");
}

static void test_fences_are_opened_and_name_the_language(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"```python\nprint('Hello from markdown')\n```", "print('Hello from markdown')\n", "python"},
        {"```py\nx\n```\n", "x\n", "py"},
        {"```\nx\n```", "x\n", ""},
        {"```c++\nx\n```", "x\n", "c++"},
        {"```Python\nx\n```", "x\n", "Python"},
        {"``` bash \nx\n```  \n\n", "x\n", "bash"},
        {"```python title=\"a b\"\nx\n```", "x\n", "python"},
        {"\n\n```python\n\nx\n\n```\n", "\nx\n\n", "python"},
        {"```python\r\nx\r\ny\r\n```\r\n", "x\r\ny\r\n", "python"},
        {"```python\n```", "", "python"},
        {"````python\n```\nx\n```\n````", "```\nx\n```\n", "python"},
        {"```python\nx\n`````", "x\n", "python"},
        {"```python\nprint(1)```", "print(1)", "python"},
        {"```javascript\nlet a = `x````", "let a = `x`", "javascript"},
        {"  ```python\n  if x:\n      y\n z\n  ```", "if x:\n    y\nz\n", "python"},
        {"```python\ns = '''\n```\ninner\n```\n'''\n```", "s = '''\n```\ninner\n```\n'''\n", "python"},
    };
    check(examples, COUNT_OF(examples));
}

static void test_code_that_only_looks_fenced_is_left_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "python = 3\nprint(python)",
        "python",
        "```",
        "``````",
        "```python",
        "```python\n",
        "```python\nx\n",
        "```python\nx\n``",
        "````python\nx\n```",
        "``python\nx\n``",
        "```brainfuck\n+\n```",
        "```python print(1)```",
        "```print(1)```\n```",
        "s = '''\n```python\nx\n```\n'''",
        "\"\"\"\n```python\nx\n```\n\"\"\"",
        "Here it is:\n```python\nx\n```",
        "```python\nx\n```\nThat was it.",
        "    indented\n",
        "\n\n",
        "`ls`",
    };
    check_same(texts, COUNT_OF(texts));
    static const char nul[] = "```py\0\nx\n```";
    check_bytes(nul, sizeof(nul) - 1, nul, sizeof(nul) - 1, "");
}

static void test_a_fence_inside_a_dictionary_is_opened_and_the_innermost_language_counts(void **state)
{
    (void)state;
    static const struct example examples[] = {
        {"{'generated_code': '```bash\\nls\\n```'}", "ls\n", "bash"},
        {"{'generated_code': '```bash\\nls\\n```', 'language': 'python'}", "ls\n", "bash"},
        {"{'generated_code': '```\\nls\\n```', 'language': 'bash'}", "ls\n", "bash"},
        {"{'code': 'x', 'language': 'cobol'}", "x", "cobol"},
        {"{'code': 'x', 'language': ''}", "x", ""},
        {"{'code': 'x', 'language': 3}", "x", ""},
        /* One of each at most: what is inside is code. */
        {"{'code': \"{'code': 'x'}\"}", "{'code': 'x'}", ""},
        {"```python\n{'code': 'x'}\n```", "{'code': 'x'}\n", "python"},
    };
    check(examples, COUNT_OF(examples));
}

static void test_a_language_too_long_for_a_name_is_cut_and_stays_unknown(void **state)
{
    (void)state;
    char text[200], name[UNWRAP_NAME_SIZE], word[101];
    struct unwrapped found = {0};

    memset(word, 'x', 100);
    word[100] = '\0';
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    snprintf(text, sizeof(text), "{'code': 'c', 'language': '%s'}", word);
    assert_int_equal(unwrap_code(text, strlen(text), known, NULL, &found), 0);
    assert_string_equal(found.language, name);
    free(found.code);
    snprintf(text, sizeof(text), "```%s\nx\n```", word);
    check_bytes(text, strlen(text), text, strlen(text), "");
}

/* 16 MiB of each shape that invites a parser to go deep or back. Linear time does each in a fraction of a second; one
 * step of a square, or a stack frame for each byte, would not end. */
static void test_time_and_stack_do_not_grow_with_hostile_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *head, *repeated, *tail;
    } shapes[] = {
        {"{'code': 'x', 'a': ", "[", ""},
        {"{'code': 'x', 'a': ", "{'a':", ""},
        {"{'code': ", "(", ""},
        {"{'code': ", "'a'", "}"},
        {"{'code': '", "\\u", "'}"},
        {"{'code': '''", "''\\", "'}"},
        {"{'code': 'x'", ",'code': 'x'", "}"},
        {"{", "#\n", "'code': 'x'}"},
        {"```python\n", "`\n", "```"},
        {"```python\n", "\n", "x```"},
        {"", "`", "\nx\n```"},
        {"", " ", "```python\nx\n   ```"},
        {"  ```python\n", "      \n", "  ```"},
        {"{'code': '", "\\ud83d", "'}"},
    };
    size_t size = 16u << 20;
    char *text = malloc(size + 128);
    assert_non_null(text);
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        size_t length = strlen(shapes[i].head), step = strlen(shapes[i].repeated);
        struct unwrapped found = {0};
        struct timespec before, after;
        memcpy(text, shapes[i].head, length + 1);
        for (; length + step < size; length += step)
            memcpy(text + length, shapes[i].repeated, step);
        memcpy(text + length, shapes[i].tail, strlen(shapes[i].tail));
        length += strlen(shapes[i].tail);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        assert_int_equal(unwrap_code(text, length, known, NULL, &found), 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        assert_true(found.length <= length);
        if (after.tv_sec - before.tv_sec > 10)
            fail_msg("shape %zu (%s) took %ld s", i, shapes[i].repeated, (long)(after.tv_sec - before.tv_sec));
        free(found.code);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dictionaries_are_opened_in_python_and_json_quoting),
        cmocka_unit_test(test_every_escape_of_a_string_is_decoded),
        cmocka_unit_test(test_what_is_no_such_dictionary_is_left_alone),
        cmocka_unit_test(test_fences_are_opened_and_name_the_language),
        cmocka_unit_test(test_code_that_only_looks_fenced_is_left_alone),
        cmocka_unit_test(test_a_fence_inside_a_dictionary_is_opened_and_the_innermost_language_counts),
        cmocka_unit_test(test_a_language_too_long_for_a_name_is_cut_and_stays_unknown),
        cmocka_unit_test(test_time_and_stack_do_not_grow_with_hostile_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
