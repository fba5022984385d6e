/*
 * See warm_python.h. The interpreter's own functions are looked up by name, as the library is preloaded into others
 * too; all of them are of its stable interface, or older than it. A child gives no reference back that it can do
 * without: it would write to shared memory for it. But an interpreter that goes on to its own end must find nothing
 * kept.
 */
#include "cell/warm_python.h"

#include "base/fd.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    METH_NOARGS = 4,
    TP_BASES = 49, /* numbers of slots, and bits of flags, as typeslots.h and object.h have them */
    TP_DEL = 53,
    TP_FINALIZE = 80,
    MOST_OBJECTS = 100000, /* that are looked at before the end */
    MOST_STREAMS = 9,
    ARCHIVE_END = 1 << 17, /* the directory of an archive is no farther from its end */
};
#define IS_HEAP_TYPE (1ul << 9)
#define IS_TYPE (1ul << 31)
#define FUNCTION_NAME "__hotcell__" /* in sys */

typedef struct object { /* the head of every object, of interpreters that are not built to watch themselves */
    ssize_t references;
    struct object *type;
} object;

struct method {
    const char *name;
    object *(*function)(object *self, object *arguments);
    int flags;
    const char *text;
};

static struct python {
    int (*ensure)(void);
    void (*release)(int state), (*drop)(object *self);
    void (*before_fork)(void), (*after_fork)(void);
    object *(*sys_get)(const char *name);
    int (*sys_set)(const char *name, object *value);
    object *(*call)(object *function, object *arguments), *(*call_method)(object *self, const char *name, const char *);
    object *(*function)(struct method *method, object *self, object *module);
    object *(*build)(const char *format, ...);
    int (*parse)(object *tuple, const char *format, ...);
    object *(*get)(object *self, const char *name);
    int (*is_true)(object *self);
    void (*print_error)(void), (*clear_error)(void);
    object *(*bytes)(const char *text), *(*new_list)(ssize_t size), *(*item)(object *list, ssize_t at),
        *(*member)(object *tuple, ssize_t at), *(*find)(object *dict, const char *name);
    int (*append)(object *list, object *one), (*is_subtype)(object *type, object *of),
        (*next)(object *dict, ssize_t *at, object **key, object **value);
    ssize_t (*list_size)(object *list), (*tuple_size)(object *tuple), (*dict_size)(object *dict);
    void (*clear)(object *dict);
    char *(*text)(object *bytes);
    const char *(*name)(object *text);
    long (*number)(object *self);
    object *(*slot)(object *type, int slot);
    unsigned long (*flags)(object *type);
    object *none;
} python;

static object *told; /* by the driver: all that is below is in it */
static struct list {
    size_t count;
    const char **item;
} command, context, names, environment;
static const char *folder, *user_site;
static object *after_fork, *adopt, *become_context;
static struct end { /* of a program */
    object *get_objects, *unfreeze, *kept, *files, *reference, *modules, *main, *builtins, *sys, *exit_code;
    ssize_t own_modules, own_builtins, own_sys;
    object **known; /* every type that there was, by address */
    size_t known_count;
    object *marker, *stream[MOST_STREAMS];
    size_t stream_count;
} end;
static uint64_t kind[3]; /* of the streams that it has made */

static void find(const char *name, void **function)
{
    if (!(*function = dlsym(RTLD_DEFAULT, name)))
        _exit(3);
}

static void look_up(void)
{
    find("PyGILState_Ensure", (void **)&python.ensure);
    find("PyGILState_Release", (void **)&python.release);
    find("Py_DecRef", (void **)&python.drop);
    find("PyOS_BeforeFork", (void **)&python.before_fork);
    find("PyOS_AfterFork_Child", (void **)&python.after_fork);
    find("PySys_GetObject", (void **)&python.sys_get);
    find("PySys_SetObject", (void **)&python.sys_set);
    find("PyObject_CallObject", (void **)&python.call);
    find("PyObject_CallMethod", (void **)&python.call_method);
    find("PyCFunction_NewEx", (void **)&python.function);
    find("Py_BuildValue", (void **)&python.build);
    find("PyArg_ParseTuple", (void **)&python.parse);
    find("PyObject_GetAttrString", (void **)&python.get);
    find("PyObject_IsTrue", (void **)&python.is_true);
    find("PyErr_Print", (void **)&python.print_error);
    find("PyErr_Clear", (void **)&python.clear_error);
    find("PyBytes_FromString", (void **)&python.bytes);
    find("PyList_New", (void **)&python.new_list);
    find("PyList_GetItem", (void **)&python.item);
    find("PyTuple_GetItem", (void **)&python.member);
    find("PyDict_GetItemString", (void **)&python.find);
    find("PyList_Append", (void **)&python.append);
    find("PyType_IsSubtype", (void **)&python.is_subtype);
    find("PyDict_Next", (void **)&python.next);
    find("PyList_Size", (void **)&python.list_size);
    find("PyTuple_Size", (void **)&python.tuple_size);
    find("PyDict_Size", (void **)&python.dict_size);
    find("PyDict_Clear", (void **)&python.clear);
    find("PyBytes_AsString", (void **)&python.text);
    find("PyUnicode_AsUTF8", (void **)&python.name);
    find("PyLong_AsLong", (void **)&python.number);
    find("PyType_GetSlot", (void **)&python.slot);
    find("PyType_GetFlags", (void **)&python.flags);
    find("_Py_NoneStruct", (void **)&python.none);
}

/* What it raises ends the process, as it ends an interpreter. */
static object *must(object *result)
{
    if (!result) {
        python.print_error(); /* SystemExit: does not return */
        _exit(125);
    }
    return result;
}

static void drop(object *one)
{
    if (one)
        python.drop(one);
}

/* ---- the end of a program ---- */

static int by_address(const void *a, const void *b)
{
    uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;
    return one < other ? -1 : one > other;
}

/* Nothing happens when one of these goes away. */
static bool is_harmless(object *type)
{
    if (python.slot(type, TP_FINALIZE) || python.slot(type, TP_DEL))
        return false;
    if (bsearch(&type, end.known, end.known_count, sizeof(object *), by_address))
        return true;
    object *bases = python.flags(type) & IS_HEAP_TYPE ? python.slot(type, TP_BASES) : NULL;
    for (ssize_t i = bases ? python.tuple_size(bases) : 0; i-- > 0;)
        if (!is_harmless(python.member(bases, i)))
            return false;
    return bases != NULL;
}

static bool is_stream(const object *one)
{
    for (size_t i = 0; i < end.stream_count; i++)
        if (end.stream[i] == one)
            return true;
    return false;
}

static bool is_closed_file(object *one)
{
    for (ssize_t i = python.tuple_size(end.files); i-- > 0;)
        if (python.member(end.files, i) == one->type) {
            object *closed = python.get(one, "closed");
            bool is_closed = closed && python.is_true(closed) == 1;
            drop(closed);
            return is_closed;
        }
    return false;
}

/* Nothing of a weak reference's callback can be noticed: there is none, or it is that of the caches of abstract classes
 * (_abc.c), a function without a module. */
static bool is_unheard(object *reference)
{
    object *callback = python.get(reference, "__callback__"), *name = NULL, *module = NULL;
    bool unheard = callback == python.none;
    if (callback && callback->type == end.get_objects->type) {
        name = python.get(callback, "__name__");
        module = python.get(callback, "__module__");
        const char *text = name ? python.name(name) : NULL;
        unheard = text && strcmp(text, "_destroy") == 0 && module == python.none;
    }
    drop(callback);
    drop(name);
    drop(module);
    return unheard;
}

/* Those that came last, which end with whatever their libraries do then. */
static bool has_library(void)
{
    ssize_t at = 0, number = 0;
    for (object *key, *module; python.next(end.modules, &at, &key, &module); number++) {
        object *file = number < end.own_modules ? NULL : python.get(module, "__file__");
        const char *name = file && file != python.none ? python.name(file) : NULL;
        size_t length = name ? strlen(name) : 0;
        bool is_library = length > 3 && strcmp(name + length - 3, ".so") == 0;
        drop(file);
        python.clear_error();
        if (is_library)
            return true;
    }
    return false;
}

static bool leaves_nothing(object *objects)
{
    ssize_t count = python.list_size(objects);
    if (count > MOST_OBJECTS || (python.dict_size(end.modules) != end.own_modules && has_library()))
        return false;
    object *seen = NULL; /* the last type; there are often many of one */
    for (ssize_t i = 0; i < count; i++) {
        object *one = python.item(objects, i);
        if (one == end.kept)
            return false; /* the program has called gc.unfreeze(): its own cannot be told from the rest */
        if (one->type != seen) {
            if (!is_stream(one) && !is_closed_file(one)) {
                if (!is_harmless(one->type))
                    return false;
                seen = one->type;
            }
        }
        if (python.flags(one->type) & IS_TYPE && !is_harmless(one))
            return false;
        if (python.is_subtype(one->type, end.reference) && !is_unheard(one))
            return false;
    }
    return true;
}

/* -1: unknown. PyRun_SimpleFile takes __file__ and __cached__ away when the program is through, but SystemExit leaves
 * them. */
static int find_exit_code(void)
{
    if (python.find(end.main, "__file__") || python.find(end.main, "__cached__") ||
        !python.find(end.main, "__spec__") || python.dict_size(end.builtins) != end.own_builtins)
        return -1;
    if (python.dict_size(end.sys) == end.own_sys)
        return 0;
    object *code = python.call(end.exit_code, NULL);
    return code && code != python.none ? (int)python.number(code) : -1;
}

static bool flush(const char *name)
{
    object *stream = python.sys_get(name);
    return stream && python.call_method(stream, "flush", NULL);
}

static bool has_marker(object *objects)
{
    for (ssize_t i = python.list_size(objects); i-- > 0;)
        if (python.item(objects, i) == end.marker)
            return true;
    return false;
}

/* An interpreter that ends clears every module and every interned string. In a child this copies each page of the
 * zygote in order to throw it away, which takes longer than most programs run. Most programs leave nothing that could
 * notice: no open file, no generator, no object with a finalizer. If that is so, the process ends once the exit
 * handlers are through; or, if only the interpreter knows the exit code, it is spared the modules. Otherwise it goes on
 * to its own end, as in a cold start. */
static object *leave(object *self, object *unused)
{
    (void)self, (void)unused;
    object *objects = flush("stdout") && flush("stderr") ? python.call(end.get_objects, NULL) : NULL;
    if (objects && !has_marker(objects)) {
        python.call_method(end.kept, "clear", NULL); /* the program has called gc.freeze(): all stays as it is */
        python.drop(objects);
        python.drop(told);
        return python.build("");
    }
    if (objects && leaves_nothing(objects)) {
        /* As exit() does, but for the ends of libraries, of which there are as many as modules, and none that could
         * tell. Their output is another matter. */
        int code = find_exit_code();
        if (code >= 0) {
            fflush(NULL);
            _exit(code);
        }
        python.clear_error();
        python.clear(end.modules);
        python.drop(objects);
        python.drop(told);
        return python.build("");
    }
    python.clear_error(); /* the interpreter's own end will tell */
    drop(objects);
    objects = python.call(end.unfreeze, NULL);
    python.drop(told);
    return objects;
}

/* ---- before there is a program ---- */

/* Their bytes stay where they are. */
static struct list strings(object *list)
{
    struct list out = {.count = (size_t)python.list_size(list)};
    if (!(out.item = calloc(out.count + 1, sizeof *out.item)))
        _exit(3);
    for (size_t i = 0; i < out.count; i++)
        if (!(out.item[i] = python.text(python.item(list, (ssize_t)i))))
            _exit(3);
    return out;
}

/* What a stream asks of its fd when it is made: where two are of one kind, the stream that was made for the one fits
 * the other. */
static uint64_t kind_of(int fd)
{
    struct stat found;
    if (fstat(fd, &found) < 0)
        return 0;
    return S_ISCHR(found.st_mode)    ? (uint64_t)found.st_rdev << 4 | 1
           : S_ISFIFO(found.st_mode) ? (uint64_t)found.st_blksize << 4 | 2
                                     : 0;
}

static void ask_driver(void)
{
    static struct method method = {"leave", leave, METH_NOARGS, NULL};
    object *function = python.sys_get(FUNCTION_NAME), *known, *list[5];
    if (!function)
        _exit(3);
    object *pair = must(python.build("(O(N))", function, must(python.function(&method, NULL, NULL))));
    python.sys_set(FUNCTION_NAME, NULL);
    told = must(python.call(python.member(pair, 0), python.member(pair, 1)));
    python.drop(pair);
    int parsed = python.parse(told, "(OOOOO)(OOO)(OOOOO)(OOOOOO)(nnn)", &list[0], &list[1], &list[2], &list[3],
                              &list[4], &after_fork, &adopt, &become_context, &known, &end.kept, &end.get_objects,
                              &end.unfreeze, &end.exit_code, &end.files, &end.reference, &end.modules, &end.main,
                              &end.builtins, &end.sys, &end.own_modules, &end.own_sys, &end.own_builtins);
    must(parsed ? told : NULL);
    command = strings(list[0]), context = strings(list[1]), names = strings(list[3]), environment = strings(list[4]);
    struct list places = strings(list[2]);
    folder = places.item[0], user_site = places.item[1];
    end.known_count = (size_t)python.list_size(known);
    if (!(end.known = calloc(end.known_count + 1, sizeof(object *))))
        _exit(3);
    for (size_t i = 0; i < end.known_count; i++)
        end.known[i] = python.item(known, (ssize_t)i);
    qsort(end.known, end.known_count, sizeof(object *), by_address);
    for (int fd = 0; fd < 3; fd++)
        kind[fd] = kind_of(fd);
}

/* ---- a program ---- */

static bool is_list(const struct list *list, char *const *words, size_t count)
{
    for (size_t i = 0; i < list->count && i < count; i++)
        if (strcmp(list->item[i], words[i]) != 0)
            return false;
    return list->count == count;
}

/* A file of its own folder that no importer of sys.path_hooks would have: neither a link, nor a folder, nor an archive.
 * What is not there is plain, and an error. */
static bool is_plain(const char *path)
{
    hc_cleanup_fd int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    struct stat found;
    if (fd < 0)
        return errno == ENOENT;
    if (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode))
        return false;
    char part[4096 + 3];
    off_t at = found.st_size > ARCHIVE_END ? found.st_size - ARCHIVE_END : 0;
    for (ssize_t got; (got = pread(fd, part, sizeof part, at)) > 3; at += got - 3)
        if (memmem(part, (size_t)got, "PK\5\6", 4))
            return false;
    return true;
}

static int by_name(const void *key, const void *item)
{
    return strcmp(key, *(const char *const *)item);
}

/* Modules of the program's own, by the names of ones that are loaded. */
static bool has_namesake(void)
{
    DIR *list = names.count ? opendir(".") : NULL;
    bool found = false;
    for (struct dirent *entry; !found && list && (entry = readdir(list));) {
        char *dot = strchr(entry->d_name, '.');
        if (dot)
            *dot = '\0';
        found = bsearch(entry->d_name, names.item, names.count, sizeof *names.item, by_name) != NULL;
    }
    if (list)
        closedir(list);
    return found;
}

static bool is_folder(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* None where the interpreter has the same already. */
static object *list_of(char *const *words, size_t count, const struct list *has)
{
    if (has && is_list(has, words, count))
        return python.none;
    object *list = must(python.new_list(0));
    for (size_t i = 0; i < count; i++)
        if (python.append(list, must(python.bytes(words[i]))) < 0)
            must(NULL);
    return list;
}

static void make_own(const struct entry_words *words)
{
    object *argv = list_of(words->argv, words->argc, &command), *env = list_of(words->envp, words->envc, &environment);
    object *fds = python.none;
    for (long fd = 0; fd < 3; fd++)
        if (!kind[fd] || kind_of((int)fd) != kind[fd]) {
            fds = fds == python.none ? must(python.new_list(0)) : fds;
            if (python.append(fds, must(python.build("l", fd))) < 0)
                must(NULL);
        }
    if (argv == python.none && env == python.none && fds == python.none)
        return;
    object *made = must(python.call(adopt, must(python.build("(NNN)", argv, env, fds))));
    for (ssize_t i = python.list_size(made); i-- > 0 && end.stream_count < MOST_STREAMS;)
        end.stream[end.stream_count++] = python.item(made, i);
}

void warm_python_serve(const struct warm_door *door)
{
    char place[PATH_MAX];
    look_up();
    int state = python.ensure(); /* whoever opens a file has let go of the interpreter */
    ask_driver();

    python.before_fork();
    if (door->fork() != 0)
        _exit(1);
    python.after_fork();
    end.marker = must(python.new_list(0)); /* made after the freeze, so that the collector knows of it */
    if (after_fork != python.none)
        must(python.call(after_fork, NULL));
    const struct entry_words *words = door->receive();
    bool is_context = is_list(&context, words->argv, words->argc);
    bool is_usual = words->argc >= command.count && is_list(&command, words->argv, command.count) &&
                    getcwd(place, sizeof place) && strcmp(place, folder) == 0 && is_plain(words->argv[1]);
    if ((!is_context && !is_usual) || is_folder(user_site) || has_namesake())
        door->start_cold();
    if (is_context)
        must(python.call(become_context, must(python.build("(N)", list_of(words->envp, words->envc, NULL)))));
    make_own(words);
    python.release(state);
}
