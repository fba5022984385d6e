# An R that keeps its variables: the program of contexts (docs/SANDBOXES.md, languages/README.md): Rscript context.R LIBRARY. R cannot receive fds:
# the library (src/cell/door_calls.c) has the door and puts a call's fds in the places of 0 to 2.
#
# Every visible value of the top level is shown, as the console would print it, and plots as PNG. Interrupts are for the code alone: everything here
# is done while they are suspended. Nothing of this file is in the global environment.
local({
    library_path <- commandArgs(TRUE)[[1L]]
    dyn.load(library_path)
    package <- sub("\\.so$", "", basename(library_path))
    check <- function(answer) if (answer$result < 0L) base::quit("no", 125L, FALSE) else answer
    state <- new.env()
    state$input <- NULL
    state$count <- 0L
    plots <- tempfile("plots")
    dir.create(plots)

    # ---- frames ----

    quoted <- function(text) {
        text <- iconv(enc2utf8(paste(text, collapse = "\n")), "UTF-8", "UTF-8", sub = "byte")
        text <- gsub("\\", "\\\\", text, fixed = TRUE)
        text <- gsub("\"", "\\\"", text, fixed = TRUE)
        for (code in c(1:31)[vapply(1:31, function(code) grepl(intToUtf8(code), text, fixed = TRUE), NA)])
            text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
        paste0("\"", text, "\"")
    }
    send <- function(...) {
        data <- charToRaw(enc2utf8(paste0(...)))
        check(.C("door_answer", data, length(data), result = 0L, PACKAGE = package))
    }
    base64 <- function(data) {
        missing <- -length(data) %% 3L
        bytes <- matrix(as.integer(c(data, raw(missing))), 3L)
        index <- rbind(bytes[1L, ] %/% 4L, bytes[1L, ] %% 4L * 16L + bytes[2L, ] %/% 16L, bytes[2L, ] %% 16L * 4L + bytes[3L, ] %/% 64L, bytes[3L, ] %% 64L)
        text <- c(LETTERS, letters, 0:9, "+", "/")[index + 1L]
        if (missing > 0L) text[length(text) + 1L - seq_len(missing)] <- "="
        paste(text, collapse = "")
    }

    # ---- what is shown ----

    show <- function(forms, value) {
        forms <- forms[nzchar(forms)]
        if (length(forms) == 0L) return(invisible())
        if (sum(nchar(forms, "bytes")) > 32 * 2^20) forms <- c("text/plain" = "(left out: more than 32 MiB to show)")
        state$displays <- state$displays + 1L
        entries <- sprintf("{\"type\":\"%s\",\"data\":%s}", names(forms), vapply(forms, quoted, ""))
        send("{\"id\":", state$id, ",\"event\":\"display\",\"value\":", if (value) "true" else "false", ",\"of\":", state$displays, ",\"entries\":[",
             paste(entries, collapse = ","), "]}")
    }
    # Those that are finished: a device that is drawn on has its last page open.
    show_plots <- function() {
        while (!is.null(grDevices::dev.list())) grDevices::dev.off()
        for (name in sort(list.files(plots, full.names = TRUE))) {
            data <- readBin(name, "raw", file.size(name))
            unlink(name)
            show(c("image/png" = base64(data)), FALSE)
        }
    }
    forms_of <- function(value) {
        forms <- character()
        if (is.data.frame(value) && requireNamespace("repr", quietly = TRUE)) forms[["text/html"]] <- repr::repr_html(value)
        forms[["text/plain"]] <- paste(utils::capture.output(if (isS4(value)) methods::show(value) else print(value)), collapse = "\n")
        forms
    }

    # ---- errors ----

    # Where the code begins among the calls that are under way.
    entrance <- quote(eval(expressions[[i]], globalenv()))
    is_ours <- function(call) is.null(call) || identical(call, entrance) || identical(call[[1L]], quote(parse))
    calls_of_code <- function(all) {
        first <- max(0L, which(vapply(all, identical, NA, entrance)))
        last <- length(all) - 2L # the rest is the handling itself
        if (first > 0L && last > first) all[seq(first + 1L, last)] else list()
    }
    line_of <- function(reference) if (inherits(reference, "srcref")) as.integer(reference)[[1L]]
    describe <- function(error, calls, name, line, lines) {
        message <- conditionMessage(error)
        place <- regmatches(message, regexec(sprintf("%s:([0-9]+):", name), message))[[1L]]
        if (length(place) == 2L) line <- min(as.integer(place[[2L]]), lines)
        trace <- vapply(calls, function(call) {
            reference <- attr(call, "srcref")
            where <- if (is.null(reference)) "" else sprintf(" at %s#%d", attr(reference, "srcfile")$filename, line_of(reference))
            paste0(deparse(call, nlines = 1L)[[1L]], where)
        }, "")
        text <- if (is_ours(conditionCall(error))) sprintf("Error: %s", message) else sprintf("Error in %s: %s", deparse(conditionCall(error), nlines = 1L)[[1L]], message)
        if (length(trace) > 60L) trace <- c(trace[1:30], "...", trace[seq(length(trace) - 29L, length(trace))])
        if (length(trace) > 0L) text <- c(text, sprintf("%3d: %s", seq_along(trace), trace))
        sprintf("{\"type\":%s,\"message\":%s,\"traceback\":%s,\"line\":%s}", quoted(class(error)[[1L]]), quoted(message), quoted(c(text, "")), if (is.null(line)) "null" else line)
    }

    # ---- a call ----

    read_code <- function(size) {
        if (size < 0L) stop("the code cannot be read, or has more than 64 MiB", call. = FALSE)
        code <- rawToChar(.C("door_code", code = raw(size), result = 0L, PACKAGE = package)$code)
        Encoding(code) <- "UTF-8"
        if (!validUTF8(code)) stop("the code is not UTF-8", call. = FALSE)
        strsplit(code, "\n", fixed = TRUE)[[1L]]
    }
    evaluate <- function(size, name) {
        line <- NULL
        lines <- ""
        calls <- list()
        ended <- function(status, error) list(status = status, error = error)
        tryCatch({
            lines <- read_code(size)
            expressions <- parse(text = lines, keep.source = TRUE, srcfile = srcfilecopy(name, lines, isFile = FALSE))
            references <- attr(expressions, "srcref")
            withCallingHandlers(
                for (i in seq_along(expressions)) {
                    line <- line_of(references[[i]])
                    result <- allowInterrupts(withVisible(eval(expressions[[i]], globalenv())))
                    if (result$visible) show(allowInterrupts(forms_of(result$value)), i == length(expressions))
                },
                error = function(error) calls <<- calls_of_code(sys.calls()),
                warning = function(warning) if (identical(getOption("warn"), 1L)) {
                    call <- conditionCall(warning)
                    cat("Warning", if (!is_ours(call)) paste0(" in ", deparse(call, nlines = 1L)[[1L]]), ": ", conditionMessage(warning), "\n", sep = "", file = stderr())
                    tryInvokeRestart("muffleWarning")
                }
            )
            ended("completed", "null")
        },
        interrupt = function(condition) ended("interrupted", "{\"type\":\"interrupt\",\"message\":\"interrupted\",\"traceback\":\"\",\"line\":null}"),
        error = function(error) ended("error", describe(error, calls, name, line, length(lines))))
    }
    carry_out <- function(call) {
        state$count <- state$count + 1L
        state$displays <- 0L
        state$id <- format(call$id, scientific = FALSE)
        outcome <- evaluate(call$size, sprintf("<cell %d>", state$count))
        while (sink.number() > 0L) sink()
        tryCatch(show_plots(), error = function(error) NULL)
        if (!is.null(state$input)) close(state$input)
        state$input <- NULL
        flush(stdout())
        flush(stderr())
        .C("door_rest", result = 0L, PACKAGE = package)
        send("{\"id\":", state$id, ",\"event\":\"done\",\"status\":\"", outcome$status, "\",\"exit_code\":null,\"error\":", outcome$error, "}")
    }

    # ---- what the code finds ----

    leave <- function(save = "default", status = 0, runLast = TRUE)
        stop(errorCondition(sprintf("quit(status = %s) was called: the context goes on", status), class = "quit", call = NULL))
    attach(list(
        q = leave, quit = leave,
        readline = function(prompt = "") {
            cat(prompt)
            if (is.null(state$input)) state$input <- file("stdin", "r")
            line <- readLines(state$input, 1L, warn = FALSE)
            if (length(line) == 0L) stop("the input has ended")
            line
        }
    ), name = "hotcell:context", warn.conflicts = FALSE)
    options(
        warn = 1L, keep.source = TRUE, echo = FALSE,
        device = function(...) grDevices::png(file.path(plots, "%04d.png"), width = 800, height = 600, type = if (capabilities("cairo")) "cairo" else "Xlib", ...)
    )
    check(.C("door_begin", result = 0L, PACKAGE = package))
    send("{\"event\":\"ready\",\"version\":\"", as.character(getRversion()), "\",\"fds\":true}")
    suspendInterrupts(repeat {
        call <- check(.C("door_call", id = 0, size = 0L, result = 0L, PACKAGE = package))
        if (call$result == 0L) base::quit("no", 0L, TRUE)
        tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(condition) NULL) # one that came while nothing was done is for nothing
        carry_out(call)
    })
})
