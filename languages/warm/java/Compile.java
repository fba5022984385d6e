import com.sun.tools.javac.Main;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The compiler, booted and waiting: java Compile.java {driver} {out} {dir}. It does what the script of languages/java.toml does, and is
 * given the words of that: the entry, its name without extension, the sources.
 *
 * What it compiles while nobody asks is of use: itself, by the launcher, and then Run.java, for which the virtual machine beside it
 * waits at the other end of a pipe, {out}.ready.
 */
public final class Compile {
    // As sed sees lines and what is blank: languages/java.toml finds the class in the same way.
    private static final String S = "[ \\t\\x0B\\f\\r]";
    private static final int LINES = Pattern.MULTILINE | Pattern.UNIX_LINES;
    private static final String NAME = "([\\p{L}\\p{Nd}_$]+)";
    private static final String KIND = "(?:(?:abstract|final|sealed|strictfp)" + S + "+)*(?:class|interface|enum|record)" + S + "+";
    private static final Pattern PACKAGE = Pattern.compile("^" + S + "*package" + S + "+([\\p{L}\\p{Nd}_$.]+)" + S + "*;", LINES);
    private static final Pattern PUBLIC = Pattern.compile("(?:^|[;}])" + S + "*public" + S + "+" + KIND + NAME, LINES);
    private static final Pattern ANY = Pattern.compile("(?:^|[;}])" + S + "*(?:public" + S + "+)?" + KIND + NAME, LINES);
    private static final String MAIN_TYPE = "([Ljava/lang/String;)V";

    private final String out, dir;

    private Compile(String out, String dir) {
        this.out = out;
        this.dir = dir;
    }

    public static void main(String[] args) throws IOException {
        String driver = args[0];
        Compile compile = new Compile(args[1], args[2]);
        compile.warmUp(driver);
        List<String> words = receive();
        int status = compile.compile(words.get(4), words.get(5), words.subList(6, words.size())); // sh -c script sh …
        System.err.flush();
        Runtime.getRuntime().halt(status);
    }

    private void warmUp(String driver) throws IOException {
        StringWriter log = new StringWriter();
        String[] words = {"--add-exports", "java.base/jdk.internal.vm.annotation=ALL-UNNAMED", "-encoding", "UTF-8", "-g", "-proc:none",
                          "-d", out + ".run", driver + "/Run.java"};
        if (Main.compile(words, new PrintWriter(log)) != 0)
            throw new IOException(log.toString());
        Files.writeString(Path.of(out + ".ready"), "\n");
    }

    /** The argument block: the numbers of arguments and variables, the working directory, the arguments, and so on. */
    private static List<String> receive() throws IOException {
        byte[] block;
        try (FileInputStream in = new FileInputStream("/.hotcell/program")) {
            block = in.readAllBytes();
        }
        List<String> words = List.of(new String(block, StandardCharsets.UTF_8).split("\0", -1));
        return words.subList(3, 3 + Integer.parseInt(words.get(0)));
    }

    private int compile(String entry, String stem, List<String> given) throws IOException {
        String text = new String(Files.readAllBytes(Path.of(entry)), StandardCharsets.UTF_8);
        List<String> sources = new ArrayList<>(given);
        String prefix = first(PACKAGE, text), name = first(PUBLIC, text);
        if (!name.isEmpty() && !name.equals(stem)) {
            Path copy = Path.of(out + ".src", name + ".java");
            Files.createDirectories(copy.getParent());
            Files.copy(Path.of(entry), copy, StandardCopyOption.REPLACE_EXISTING);
            sources.set(0, copy.toString());
        }
        if (!javac(sources))
            return 1;
        prefix = prefix.isEmpty() ? "" : prefix + ".";
        Files.writeString(Path.of(out + ".args"), "-cp\n" + out + ":" + dir + "\n" + prefix + toStart(text, prefix, name, stem) + "\n");
        return 0;
    }

    private static String first(Pattern pattern, String text) {
        Matcher matcher = pattern.matcher(text);
        return matcher.find() ? matcher.group(1) : "";
    }

    private boolean javac(List<String> sources) {
        List<String> words = new ArrayList<>(List.of("-encoding", "UTF-8", "-g", "-proc:none", "-d", out));
        words.addAll(sources);
        StringWriter log = new StringWriter();
        boolean good = Main.compile(words.toArray(new String[0]), new PrintWriter(log)) == 0;
        System.err.print(Pattern.compile("^" + Pattern.quote(out + ".src/"), Pattern.MULTILINE).matcher(log.toString()).replaceAll(""));
        return good;
    }

    /** The public class, else the one named like the file, else the first that has a main method. */
    private String toStart(String text, String prefix, String name, String stem) throws IOException {
        if (!name.isEmpty())
            return name;
        List<String> names = new ArrayList<>(List.of(stem));
        ANY.matcher(text).results().forEach(result -> names.add(result.group(1)));
        for (String other : names) {
            Path file = Path.of(out, (prefix + other).replace('.', '/') + ".class");
            if (Files.exists(file) && Files.readString(file, StandardCharsets.ISO_8859_1).contains(MAIN_TYPE))
                return other;
        }
        return stem;
    }
}
