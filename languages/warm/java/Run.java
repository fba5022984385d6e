package hotcell_primed; // a name that no program has: boot classes come before its own

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import jdk.internal.vm.annotation.Hidden;

/**
 * A virtual machine, booted and waiting for its program: java -Xbootclasspath/a:(where this is) -cp {out}:{dir} hotcell_primed.Run.
 *
 * The class path is known before there is anything in it, so the program's classes are loaded by the loader that always does
 * it. What a program can see of this class are frames below its own main, and those are not shown: the virtual machine hides
 * methods of boot classes with the annotation below, the frames of method handles, and hidden classes. An exception that
 * nobody catches passes through to the launcher, which reports it as ever.
 */
public final class Run implements Runnable {
    private static String name; // of the program's class
    private static Class<?> program;
    private static String[] args;
    private static MethodHandle start;

    /**
     * All the work but the loading of the program's class is done in other threads. What hash codes objects get is a matter of the
     * thread: the program's are those of a plain start if this one has given as many as it would have.
     */
    @Hidden
    public static void main(String[] files) throws Throwable {
        aside(new Run(files));
        try {
            program = Class.forName(name, false, ClassLoader.getSystemClassLoader());
        } catch (ClassNotFoundException | LinkageError wrong) {
            becomeCold();
        }
        aside(new Run(null));
        launch();
    }

    private static void aside(Run step) throws InterruptedException {
        Thread thread = new Thread(null, step, "hotcell");
        thread.start();
        thread.join();
    }

    private final String[] files; // of the first step: where the compiler says what to start; what is of no use any more

    private Run(String[] files) {
        this.files = files;
    }

    @Override
    public void run() {
        try {
            if (files != null) {
                warmUp();
                remove(files);
                receive(files[0]);
            } else {
                start = starter(program);
                if (start == null)
                    becomeCold();
            }
        } catch (Throwable wrong) {
            wrong.printStackTrace();
            Runtime.getRuntime().halt(70);
        }
    }

    /** The pipe, and the folder that these classes came from. */
    private static void remove(String[] files) throws IOException {
        Path own = Path.of(files[2], "hotcell_primed");
        try (DirectoryStream<Path> folder = Files.newDirectoryStream(own)) {
            for (Path file : folder)
                Files.delete(file);
        }
        Files.delete(own);
        Files.delete(own.getParent());
        Files.delete(Path.of(files[1]));
    }

    /** Called once before, so that everything about it is settled. */
    @Hidden
    private static void launch() throws Throwable {
        start.invokeExact(args);
    }

    /** `launch`: the file that the compiler leaves for the launcher. It has three lines: -cp, the class path, the class. */
    private static void receive(String launch) throws IOException {
        byte[] block; // the numbers of arguments and variables, the working directory, the arguments, and so on
        try (FileInputStream in = new FileInputStream("/.hotcell/program")) {
            block = in.readAllBytes();
        }
        List<String> words = Arrays.asList(new String(block, StandardCharsets.UTF_8).split("\0", -1));
        List<String> argv = words.subList(3, 3 + Integer.parseInt(words.get(0)));
        List<String> own = argv.subList(argv.indexOf("@" + launch) + 1, argv.size());
        name = Files.readAllLines(Path.of(launch)).get(2);
        args = own.toArray(new String[0]);
        System.setProperty("sun.java.command", own.isEmpty() ? name : name + " " + String.join(" ", own));
    }

    /** What the launcher would complain of, it shall complain of itself: the library execs the cold command. */
    private static void becomeCold() throws IOException {
        new FileInputStream("/.hotcell/cold").close();
    }

    /**
     * Something that calls the main method of a class; null where that is not as simple as it mostly is. It must be the call that
     * initialises the class, with nothing to be seen below it: that of a hidden class beside it. Only a class of the same module may
     * define one, so there are two: the first only says that it may.
     */
    private static MethodHandle starter(Class<?> program) {
        try {
            Method main = program.getMethod("main", String[].class);
            if (!Modifier.isStatic(main.getModifiers()) || main.getReturnType() != void.class || main.getDeclaringClass() != program
                || program.getSuperclass() != null && program.getSuperclass().getName().startsWith("javafx."))
                return null;
            String path = program.getName().replace('.', '/');
            MethodType type = MethodType.methodType(void.class, String[].class);
            MethodType asked = MethodType.methodType(MethodHandles.Lookup.class);
            byte[] first = caller(path + "$$", "java/lang/invoke/MethodHandles", "lookup", asked, false, 0xb8, 0, 11, 0xb0);
            byte[] second = caller(path + "$$$", path, "main", type, program.isInterface(), 0x2a, 0xb8, 0, 11, 0xb1);
            MethodHandles.Lookup beside = MethodHandles.privateLookupIn(program, MethodHandles.lookup());
            beside = (MethodHandles.Lookup) beside.findStatic(beside.defineClass(first), "lookup", asked).invokeExact();
            return beside.findStatic(beside.defineHiddenClass(second, true).lookupClass(), "main", type);
        } catch (Throwable none) {
            return null;
        }
    }

    /** A class file with one static method, which calls one of the same name in another class: instruction 0xb8, constant 11. */
    private static byte[] caller(String name, String owner, String method, MethodType type, boolean isInterface, int... code)
        throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(0xCAFEBABE);
        out.writeInt(52); // the version of Java 8
        out.writeShort(12);
        for (String text : new String[] {name, "java/lang/Object", owner, method, type.toMethodDescriptorString(), "Code"}) {
            out.writeByte(1); // 1 to 6: text
            out.writeUTF(text);
        }
        for (int i = 1; i <= 3; i++) {
            out.writeByte(7); // 7 to 9: classes
            out.writeShort(i);
        }
        out.write(new byte[] {12, 0, 4, 0, 5});                              // 10: name and type
        out.write(new byte[] {(byte) (isInterface ? 11 : 10), 0, 9, 0, 10}); // 11: the method
        out.write(new byte[] {0, 0x30, 0, 7, 0, 8, 0, 0, 0, 0});             // final; this, super; no interfaces, no fields
        out.write(new byte[] {0, 1, 0, 9, 0, 4, 0, 5, 0, 1, 0, 6});          // one method, public and static, with code
        out.writeInt(12 + code.length);
        out.write(new byte[] {0, 1, 0, 1}); // stack, variables
        out.writeInt(code.length);
        for (int one : code)
            out.writeByte(one);
        out.write(new byte[] {0, 0, 0, 0, 0, 0}); // no handlers, no attributes of the code, none of the class
        return bytes.toByteArray();
    }

    // ---- before there is a program ----

    /** What most programs need and the virtual machine loads only then. Nothing here looks at the environment or a clock. */
    private static void warmUp() throws Throwable {
        PrintStream out = new PrintStream(new ByteArrayOutputStream(), true);
        Scanner scanner = new Scanner(new ByteArrayInputStream("7 8\nnext\n".getBytes(StandardCharsets.UTF_8)));
        Map<String, Integer> counts = new TreeMap<>(new HashMap<>());
        counts.merge(scanner.next(), scanner.nextInt(), Integer::sum);
        List<Integer> numbers = new ArrayList<>(List.of(3, 1, 2));
        numbers.sort(Comparator.comparing(n -> -n));
        out.println("text " + numbers.size() + ' ' + counts + 1.5 + true);
        out.printf("%d %s %.2f%n", 1, "text", 1.5);
        out.println(IntStream.range(0, 5).boxed().filter(n -> n % 2 == 0).map(n -> "n" + n).collect(Collectors.joining(",")));
        out.println(numbers.stream().collect(Collectors.groupingBy(n -> n > 1)));
        new BufferedReader(new InputStreamReader(new ByteArrayInputStream(new byte[] {'a', '\n'}))).readLine();
        new IllegalStateException("none", new RuntimeException()).printStackTrace(out);
        out.println(new Pair(1, "text"));
        start = starter(Sample.class);
        args = new String[0];
        launch();
    }

    record Pair(int number, String text) {}

    /** Has a main method. */
    static final class Sample {
        public static void main(String[] args) {}
    }
}
