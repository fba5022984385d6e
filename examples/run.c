/*
 * Run a few lines of Python in a cell, from C. Build it with:
 *
 *     cc run.c -o run $(pkg-config --cflags --libs hotcell)
 *
 * and give it code to run: ./run 'print(6 * 7)'
 */
#include <hotcell.h>
#include <stdio.h>

static int failed(hc_error *error)
{
    int code = hc_error_exit_code(error);

    fprintf(stderr, "run: %s\n%s\n", hc_error_message(error), hc_error_remedy(error));
    hc_error_free(error);
    return code;
}

/* Output arrives here while the program runs. */
static int show(void *stream, int number, const char *bytes, size_t length)
{
    (void)number;
    return fwrite(bytes, 1, length, stream) == length ? 0 : -1;
}

static int run(hc_engine *engine, const char *code)
{
    hc_request *request = hc_request_new();
    hc_result *result = NULL;
    hc_error *error = NULL;
    int exit_code;

    if (!request) {
        fputs("run: out of memory\n", stderr);
        return 125;
    }
    hc_request_on_output(request, show, stdout);
    if (hc_request_set(request, "language", "python", &error) < 0 ||
        hc_request_set(request, "code", code, &error) < 0 ||
        hc_request_set(request, "limits.timeout", "5s", &error) < 0 ||
        hc_request_set(request, "limits.memory", "64m", &error) < 0 || hc_run(engine, request, &result, &error) < 0) {
        exit_code = failed(error);
    } else {
        exit_code = hc_result_exit_code(result);
        fprintf(stderr, "status: %s, exit code: %d %s\n", hc_result_status(result), exit_code,
                hc_result_summary(result));
    }
    hc_result_free(result);
    hc_request_free(request);
    return exit_code;
}

int main(int argc, char **argv)
{
    hc_config *config = NULL;
    hc_engine *engine = NULL;
    hc_error *error = NULL;
    int exit_code;

    if (hc_config_load(NULL, &config, &error) < 0 || hc_engine_open(config, &engine, &error) < 0)
        exit_code = failed(error);
    else
        exit_code = run(engine, argc > 1 ? argv[1] : "print('hello from a cell')");
    hc_engine_close(engine);
    hc_config_free(config);
    return exit_code;
}
