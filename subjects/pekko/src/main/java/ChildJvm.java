import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Starts another class of this program in a JVM of its own. That JVM ends when its stdin does: with this one, however
 * this one ends.
 */
final class ChildJvm {
    private ChildJvm() { }

    /**
     * The command for the child. `prefix`: a command that runs the JVM, or empty; `jvm`: its options. Its stderr is
     * this JVM's.
     */
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

    /** Runs in the child: waits for the end of stdin, then ends at once. */
    static void endWithParent() throws IOException {
        while (System.in.read() >= 0) {
            // A child that only waits gets no input.
        }
        Runtime.getRuntime().halt(0);
    }
}
