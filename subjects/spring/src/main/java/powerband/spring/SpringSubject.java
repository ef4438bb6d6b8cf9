package powerband.spring;

import java.time.Duration;
import java.util.concurrent.RejectedExecutionHandler;
import java.util.concurrent.ThreadPoolExecutor;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.context.event.ApplicationReadyEvent;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.event.EventListener;
import org.springframework.scheduling.concurrent.ThreadPoolTaskExecutor;

/**
 * A Spring Boot application as published: one endpoint reads and sorts strings from a database, another writes some.
 * The work is done by the request's own thread or by an executor whose sizes are options. The application reports that
 * it is ready once both of its ports listen and the first rows are in.
 *
 * <p>Not here: the endpoints ({@link StringsController}), the table ({@link StringStore}).
 */
@SpringBootApplication
@EnableConfigurationProperties(SpringSubject.Options.class)
public class SpringSubject {
    private static final int KEEP_ALIVE_S = 60;

    /** The options {@code --subject.NAME=VALUE}; everything else is set by Spring Boot's own properties. */
    @ConfigurationProperties("subject")
    public record Options(int core, int max, int queue, Policy policy, Mode mode, int rows, Duration insertDelay) {
        public Options {
            if (core < 0 || max < 1 || core > max || queue < 0 || rows < 0 || insertDelay.isNegative()) {
                throw new IllegalArgumentException("core " + core + ", max " + max + ", queue " + queue + ", rows " + rows
                        + ", insert_delay " + insertDelay.toMillis() + " ms: all of 0 or more, max of 1 and of core or more");
            }
        }
    }

    /** The fate of work that the executor refuses. */
    public enum Policy { CALLER_RUNS, ABORT }

    /** The thread that does the work of a request: its own, or one of the executor. */
    public enum Mode { SYNC, ASYNC }

    public static void main(String[] arguments) {
        SpringApplication.run(SpringSubject.class, arguments);
    }

    /**
     * The executor. Its gauges {@code executor_...} appear on the metrics page by themselves, like those of any such
     * bean.
     */
    @Bean
    ThreadPoolTaskExecutor workExecutor(Options options) {
        ThreadPoolTaskExecutor executor = new ThreadPoolTaskExecutor();
        executor.setThreadNamePrefix("work-");
        executor.setCorePoolSize(options.core());
        executor.setMaxPoolSize(options.max());
        executor.setQueueCapacity(options.queue());
        executor.setKeepAliveSeconds(KEEP_ALIVE_S);
        executor.setRejectedExecutionHandler(handler(options.policy()));
        return executor;
    }

    private static RejectedExecutionHandler handler(Policy policy) {
        return switch (policy) {
            case CALLER_RUNS -> new ThreadPoolExecutor.CallerRunsPolicy();
            case ABORT -> new ThreadPoolExecutor.AbortPolicy();
        };
    }

    @EventListener
    void ready(ApplicationReadyEvent event) {
        System.out.println("ready after " + event.getTimeTaken().toMillis() + " ms");
    }
}
