/*
 * Searching by name and by content. It is bounded in every direction: matches, time, the size of a file, the length of
 * a line that is looked at as a whole, the pattern. Symlinks are not followed; binary files (a NUL in the first block)
 * and what is too large or may not be read are passed over and counted.
 *
 * A regular expression is a POSIX extended one, over bytes. Those that could take more than their share are refused
 * before: back references, which make a matcher try everything, and counts that multiply. Should one take its time all
 * the same, an alarm ends the process, and the body ends in the middle.
 */
#include "base/fd.h"
#include "base/loop.h"
#include "cell/files_internal.h"
#include "cell/files_walk.h"
#include "cell/glob.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LIMIT_MAX = 10000,
    TIME_MAX = 600000,
    PIECE = 64 * 1024,  /* of a line */
    TEXT_MAX = 400,     /* of a line that is shown */
    TEXT_BEFORE = 100,  /* the match, where a line is longer */
    PATTERN_MAX = 1024, /* of a regular expression */
    REPEATS_MAX = 1000, /* of all its counts, multiplied */
    NAP = 2,            /* seconds of grace before the alarm */
};

struct search {
    struct files_json *body;
    const char *root, *name, *content;
    bool regex;
    regex_t compiled;
    uint64_t limit, max_size, found, skipped, deadline;
    bool truncated;
    char *line; /* PIECE + 1 */
};

struct piece { /* of a line, or all of it */
    const char *path;
    size_t length;
    int64_t line, column; /* where it begins */
};

static bool is_over(struct search *search)
{
    if (hc_now() > search->deadline)
        search->truncated = true;
    return search->truncated || search->body->status < 0;
}

/* Whether there is room for one more match. One that there is no room for is known to be there. */
static bool count_match(struct search *search)
{
    search->truncated = search->truncated || search->found == search->limit;
    search->found += !search->truncated;
    return !search->truncated;
}

static void put_name(struct search *search, const char *path, const char *type)
{
    if (!count_match(search))
        return;
    files_json_open(search->body, NULL, '{');
    files_put_below(search->body, "path", search->root, path);
    files_json_text(search->body, "type", type);
    files_json_close(search->body, '}');
}

static void put_match(struct search *search, const struct piece *piece, size_t at)
{
    if (!count_match(search))
        return;
    size_t from = at > TEXT_BEFORE && piece->length > TEXT_MAX ? at - TEXT_BEFORE : 0;
    size_t length = piece->length - from < TEXT_MAX ? piece->length - from : TEXT_MAX;
    while (from > 0 && length > 0 && ((unsigned char)search->line[from] & 0xc0) == 0x80)
        from++, length--; /* not in the middle of a character */
    while (from + length < piece->length && length > 0 && ((unsigned char)search->line[from + length] & 0xc0) == 0x80)
        length--;
    files_json_open(search->body, NULL, '{');
    files_put_below(search->body, "path", search->root, piece->path);
    files_json_number(search->body, "line", piece->line);
    files_json_number(search->body, "column", piece->column + (int64_t)at);
    files_json_bytes(search->body, "text", search->line + from, length);
    files_json_close(search->body, '}');
}

/* Whether a piece has it, and where. A regular expression sees the end of the text at a NUL: there is none left. */
static bool has_content(struct search *search, size_t length, size_t *at)
{
    if (search->regex) {
        regmatch_t match;
        for (char *nul = search->line; (nul = memchr(nul, '\0', (size_t)(search->line + length - nul)));)
            *nul = ' ';
        search->line[length] = '\0';
        if (regexec(&search->compiled, search->line, 1, &match, 0) != 0)
            return false;
        *at = (size_t)match.rm_so;
        return true;
    }
    const char *found = memmem(search->line, length, search->content, strlen(search->content));
    if (found)
        *at = (size_t)(found - search->line);
    return found != NULL;
}

static void look_at(struct search *search, struct piece *piece)
{
    size_t at = 0, shown = piece->length;
    if (shown > 0 && search->line[shown - 1] == '\r')
        piece->length--;
    if (has_content(search, piece->length, &at))
        put_match(search, piece, at);
    piece->length = shown;
}

/* Line by line, a match for each; a line longer than a piece is looked at in pieces. */
static void search_content(struct search *search, int fd, const char *path, uint64_t size)
{
    char chunk[FILES_CHUNK];
    struct piece piece = {.path = path, .line = 1, .column = 1};
    for (bool first = true; size > 0 && !is_over(search); first = false) {
        ssize_t count = hc_read_full(fd, chunk, size < sizeof chunk ? (size_t)size : sizeof chunk);
        if (count <= 0)
            break;
        size -= (uint64_t)count;
        if (first && memchr(chunk, '\0', (size_t)count)) {
            search->skipped++;
            return;
        }
        for (ssize_t i = 0; i < count && !search->truncated; i++) {
            bool ends = chunk[i] == '\n';
            if (!ends)
                search->line[piece.length++] = chunk[i];
            if (!ends && piece.length < PIECE)
                continue;
            look_at(search, &piece);
            piece.column = ends ? 1 : piece.column + (int64_t)piece.length;
            piece.line += ends;
            piece.length = 0;
            if (hc_now() > search->deadline)
                break;
        }
    }
    if (piece.length > 0 && !is_over(search))
        look_at(search, &piece);
}

static void search_file(struct search *search, int dir, const char *name, const char *path)
{
    struct stat stat;
    hc_cleanup_fd int fd = files_open_regular(dir, name, O_RDONLY | O_NOFOLLOW, &stat);
    if (fd < 0 || (uint64_t)stat.st_size > search->max_size)
        search->skipped++;
    else
        search_content(search, fd, path, (uint64_t)stat.st_size);
}

static bool name_fits(const struct search *search, const char *path, const char *name)
{
    return !search->name || glob_match(search->name, strchr(search->name, '/') ? path : name);
}

static const char *type_word(unsigned char type)
{
    return files_type(DTTOIF(type));
}

static int search_entry(struct files_walk *walk, const char *name, unsigned char type, void *data, struct hc_err *err)
{
    struct search *search = data;
    const char *path = walk->path.data;
    (void)err;
    if (is_over(search))
        return -ECANCELED;
    if (name_fits(search, path, name)) {
        if (!search->content)
            put_name(search, path, type_word(type));
        else if (type == DT_REG)
            search_file(search, walk->at, name, path);
    }
    return type == DT_DIR;
}

static int pass_over(struct files_walk *walk, int code, void *data, struct hc_err *err)
{
    struct search *search = data;
    (void)walk, (void)code, (void)err;
    search->skipped++;
    return 0;
}

/* ---- the pattern ---- */

static int check_pattern(const char *pattern, struct hc_err *err)
{
    uint64_t repeats = 1;
    if (strlen(pattern) > PATTERN_MAX)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "content: a regular expression of %zu bytes; %d are the most",
                       strlen(pattern), PATTERN_MAX);
    for (const char *at = pattern; *at; at++) {
        if (*at == '\\' && at[1] >= '1' && at[1] <= '9')
            return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "content: back references (\\%c) are not allowed", at[1]);
        if (*at == '\\' && at[1]) {
            at++;
        } else if (*at == '{') {
            uint64_t most = 1;
            for (const char *digit = at + 1; *digit && *digit != '}';
                 digit += strcspn(digit, ",}") ? strcspn(digit, ",}") : 1) {
                uint64_t number = strtoull(digit, NULL, 10);
                most = number > most ? number : most;
            }
            if (most > REPEATS_MAX || (repeats *= most) > REPEATS_MAX)
                return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "content: counts in braces that come to more than %d",
                               REPEATS_MAX);
        }
    }
    return 0;
}

static int compile(struct search *search, struct hc_err *err)
{
    if (!search->regex)
        return 0;
    int status = check_pattern(search->content, err);
    if (status < 0)
        return status;
    int wrong = regcomp(&search->compiled, search->content, REG_EXTENDED);
    if (wrong) {
        char reason[128];
        regerror(wrong, &search->compiled, reason, sizeof reason);
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "content: '%.200s' is no regular expression: %s", search->content,
                       reason);
    }
    return 0;
}

/* ---- */

static int read_words(struct files *files, struct search *search, char path[PATH_MAX], struct hc_err *err)
{
    uint64_t milliseconds = 10000;
    search->limit = 100;
    search->max_size = 64 << 20;
    int status = files_path(files, FILES_PATH, path, err);
    if (status == 0)
        status = files_switch(files, FILES_REGEX, &search->regex, err);
    if (status == 0)
        status = files_number(files, FILES_LIMIT, 1, LIMIT_MAX, &search->limit, err);
    if (status == 0)
        status = files_number(files, FILES_MAX_SIZE, 0, INT64_MAX, &search->max_size, err);
    if (status == 0)
        status = files_number(files, FILES_TIME, 1, TIME_MAX, &milliseconds, err);
    if (status < 0)
        return status;
    search->name = files->value[FILES_NAME];
    search->content = files->value[FILES_CONTENT];
    if (search->name && !*search->name)
        search->name = NULL;
    if (search->content && !*search->content)
        search->content = NULL;
    if (!search->name && !search->content)
        return hc_fail(err, HC_CLASS_REQUEST, EINVAL, "a search takes a name, a content, or both");
    search->regex = search->regex && search->content;
    search->deadline = hc_now() + milliseconds * 1000;
    alarm((unsigned)(milliseconds / 1000) + NAP);
    return 0;
}

static int search_below(struct search *search, const char *path, int dir, struct hc_err *err)
{
    static const struct files_hooks hooks = {.entry = search_entry, .lost = pass_over};
    struct files_json *body = search->body;
    files_json_open(body, NULL, '{');
    files_json_open(body, "matches", '[');
    int status = 0;
    if (dir >= 0)
        status = files_walk(dir, &hooks, search, err);
    else if (search->content)
        search_file(search, AT_FDCWD, path, "");
    /* A tree too large to go on is like time that ran out: what was found is worth having. */
    if (status == -ECANCELED || status == -EFBIG) {
        search->truncated = true;
        status = 0;
    }
    files_json_close(body, ']');
    files_json_bool(body, "truncated", search->truncated);
    files_json_number(body, "skipped", (int64_t)search->skipped);
    files_json_close(body, '}');
    files_json_line(body);
    return status < 0 ? status : files_body_status(body, err);
}

int files_search(struct files *files, struct hc_err *err)
{
    char path[PATH_MAX];
    struct stat stat;
    struct search search = {.body = &files->body, .root = path};
    int status = read_words(files, &search, path, err);
    if (status == 0)
        status = compile(&search, err);
    if (status < 0)
        return status;
    hc_cleanup_free char *line = search.line = malloc(PIECE + 1);
    hc_cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOCTTY | O_CLOEXEC);
    if (!line)
        status = hc_fail(err, HC_CLASS_HOST, ENOMEM, "no memory to search with");
    else if (dir < 0 && (errno != ENOTDIR || lstat(path, &stat) < 0))
        status = files_fail(err, errno, "search", path);
    if (status == 0) {
        files_head_begin(files);
        status = files_head_end(files, err);
    }
    if (status == 0)
        status = search_below(&search, path, dir, err);
    if (search.regex)
        regfree(&search.compiled);
    return status;
}
