import java.io.IOException;
import java.util.List;

/** Other load on the machine: a process with the given number of threads that are always busy. */
public final class Neighbours {
    /** Kept in a field, because its end of the pipe closes with it. */
    private static Process process;

    private Neighbours() { }

    /**
     * Starts the process. Its memory is small, and it publishes no figures, so that it is not among the subject's JVMs.
     */
    static void start(int threads) throws IOException {
        if (threads > 0) {
            List<String> jvm = List.of("-Xmx16m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData");
            process = ChildJvm.command(List.of(), jvm, Neighbours.class, List.of(Integer.toString(threads)))
                    .redirectOutput(ProcessBuilder.Redirect.INHERIT)
                    .start();
        }
    }

    public static void main(String[] arguments) throws IOException {
        for (int thread = Integer.parseInt(arguments[0]); thread > 0; thread--) {
            Thread.ofPlatform().name("neighbour-" + thread).daemon().start(() -> {
                while (true) {
                    Thread.onSpinWait();
                }
            });
        }
        ChildJvm.endWithParent();
    }
}
