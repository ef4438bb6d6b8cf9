import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.encoder.PatternLayoutEncoder;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.OutputStreamAppender;
import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The players' log, written by Logback to a file: at level debug one line per message, else one for every 50,000. The
 * file loses its name as soon as it is open, and is overwritten from the start when it is full, so that nothing is left
 * behind however the process ends.
 */
final class LogFile extends OutputStream {
    private static final long BYTES_MAX = 64 * 1024 * 1024;
    private static final String PATTERN = "%d{ISO8601} %-5level [%thread] %logger - %msg%n";

    private final RandomAccessFile file;
    private long written;

    private LogFile(RandomAccessFile file) {
        this.file = file;
    }

    static Logger open(boolean debug) throws IOException {
        Path path = Files.createTempFile("powerband-pekko-", ".log");
        RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw");
        Files.delete(path);

        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        context.reset();
        PatternLayoutEncoder encoder = new PatternLayoutEncoder();
        encoder.setContext(context);
        encoder.setPattern(PATTERN);
        encoder.start();
        OutputStreamAppender<ILoggingEvent> appender = new OutputStreamAppender<>();
        appender.setContext(context);
        appender.setEncoder(encoder);
        appender.setOutputStream(new LogFile(file));
        appender.start();
        ch.qos.logback.classic.Logger root = context.getLogger(Logger.ROOT_LOGGER_NAME);
        root.setLevel(debug ? Level.DEBUG : Level.INFO);
        root.addAppender(appender);
        return context.getLogger("reflection");
    }

    @Override
    public void write(byte[] bytes, int from, int count) throws IOException {
        if (written + count > BYTES_MAX) {
            file.seek(0);
            written = 0;
        }
        file.write(bytes, from, count);
        written += count;
    }

    @Override
    public void write(int value) throws IOException {
        write(new byte[] {(byte) value}, 0, 1);
    }
}
