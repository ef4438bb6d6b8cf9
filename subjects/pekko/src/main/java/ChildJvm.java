import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Starts another class of this program in a JVM of its own, which ends when its stdin does: with us, however we end. */
final class ChildJvm {
    private ChildJvm() { }

    /** `prefix`: a command that runs the JVM, or nothing; `jvm`: its options. What it says on stderr is said on ours. */
    static ProcessBuilder command(List<String> prefix, List<String> jvm, Class<?> main, List<String> arguments) {
        List<String> command = new ArrayList<>(prefix);
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(jvm);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
        command.addAll(arguments);
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
    }

    /** The options that this JVM was started with. */
    static List<String> sameOptions() {
        return ManagementFactory.getRuntimeMXBean().getInputArguments();
    }

    /** In the child: waits for the end of stdin, then ends at once. */
    static void endWithParent() throws IOException {
        while (System.in.read() >= 0) {
            // Nothing is said to a child that only waits.
        }
        Runtime.getRuntime().halt(0);
    }
}
