import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** An event loop's thread: its name, and the file in which the kernel reports its CPU and run-queue time. */
record LoopThread(String name, Path schedstat) {
    /** The calling thread. */
    static LoopThread current() {
        String name = Thread.currentThread().getName();
        try {
            Path task = Path.of("/proc").resolve(Files.readSymbolicLink(Path.of("/proc/thread-self")));
            return new LoopThread(name, task.resolve("schedstat"));
        } catch (IOException noProc) {
            return new LoopThread(name, null);
        }
    }

    /** Nanoseconds on a CPU, then nanoseconds runnable but waiting for one; null if the kernel does not report them. */
    long[] cpuAndWaitNs() {
        if (schedstat == null) {
            return null;
        }
        try {
            String[] fields = Files.readString(schedstat).split("\\s+");
            return new long[] {Long.parseLong(fields[0]), Long.parseLong(fields[1])};
        } catch (IOException | RuntimeException untold) {
            return null;
        }
    }
}
