# R, booted and waiting: it runs a copy of this file as it would run main.R, reading it expression by expression. The one below
# waits for the program, and appends it to the copy: what R reads next is the program, at top level, as if it had been there all along.
local({
    copy <- file.path(getwd(), "main.R")
    before <- Sys.getenv()

    block <- raw()
    program <- file("/.hotcell/program", "rb", raw = TRUE)
    while (length(part <- readBin(program, "raw", 65536L)) > 0L) block <- c(block, part)
    close(program)

    # The numbers of arguments and variables, the working directory, the arguments, and so on, each with a NUL at its end.
    ends <- which(block == as.raw(0L))
    starts <- c(1L, ends[-length(ends)] + 1L)
    word <- function(i) rawToChar(block[seq.int(starts[i], length.out = ends[i] - starts[i])])
    argv <- vapply(3L + seq_len(as.integer(word(1L))), word, "")
    args <- argv[-seq_len(match("main.R", argv))]

    # What R and the scripts that start it have set; the program's own variables are there already.
    set <- before[setdiff(names(before), c(names(Sys.getenv()), "LD_PRELOAD", "HOTCELL_WARM"))]
    set[["PWD"]] <- word(3L)
    do.call(Sys.setenv, as.list(set))

    if (length(args) > 0L) {
        own <- commandArgs
        if (!identical(body(own)[[2L]], quote(args <- .Internal(commandArgs()))))
            file("/.hotcell/cold", "rb") # another R: the library execs the cold command
        body(own)[[2L]][[3L]] <- c(commandArgs(), "--args", args)
        unlockBinding("commandArgs", baseenv())
        assign("commandArgs", own, baseenv())
        lockBinding("commandArgs", baseenv())
    }
    file.append(copy, "main.R")
    unlink(dirname(copy), recursive = TRUE)
    invisible()
})
