package powerband.spring;

import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.springframework.core.task.TaskRejectedException;
import org.springframework.dao.DataAccessException;
import org.springframework.http.HttpStatus;
import org.springframework.http.ResponseEntity;
import org.springframework.scheduling.concurrent.ThreadPoolTaskExecutor;
import org.springframework.web.bind.annotation.DeleteMapping;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.request.async.AsyncRequestTimeoutException;
import org.springframework.web.filter.ServerHttpObservationFilter;
import jakarta.servlet.http.HttpServletRequest;

/**
 * The endpoints. In mode async the executor does the work: a read is answered once it is done, a write is acknowledged
 * with status 202 before it is done, so that a read meanwhile sees only a part of it. Each kind of failure has its own
 * status and sentence, and the metrics page distinguishes them by {@code exception}.
 */
@RestController
class StringsController {
    private static final int WRITTEN = 500;
    private static final Comparator<String> ORDER = Comparator.comparingInt(String::length)
            .thenComparingInt(StringsController::digitSum)
            .thenComparing(Comparator.naturalOrder());

    private final StringStore store;
    private final ThreadPoolTaskExecutor executor;
    private final boolean async;

    StringsController(StringStore store, ThreadPoolTaskExecutor executor, SpringSubject.Options options) {
        this.store = store;
        this.executor = executor;
        async = options.mode() == SpringSubject.Mode.ASYNC;
    }

    /**
     * All strings, sorted by length, then by the sum of their digits, then alphabetically; as a list, or as its future.
     */
    @GetMapping("/test")
    Object sorted() {
        return async ? CompletableFuture.supplyAsync(this::sort, executor) : sort();
    }

    @PostMapping("/random")
    ResponseEntity<String> insert() {
        if (async) {
            executor.execute(this::insertUnheard);
            return ResponseEntity.accepted().body("being inserted\n");
        }
        store.insertRandom(WRITTEN);
        return ResponseEntity.ok("inserted\n");
    }

    /** Inserts after the answer was sent: a failure can only be logged. */
    private void insertUnheard() {
        try {
            store.insertRandom(WRITTEN);
        } catch (DataAccessException error) {
            System.err.println("spring: an acknowledged write failed: " + error.getMostSpecificCause().getMessage());
        }
    }

    @DeleteMapping("/delete")
    String empty() {
        store.empty();
        return "empty\n";
    }

    @ExceptionHandler
    ResponseEntity<String> refused(TaskRejectedException refusal, HttpServletRequest request) {
        return failed(HttpStatus.INTERNAL_SERVER_ERROR, "the executor refused: all threads busy, queue full", refusal, request);
    }

    @ExceptionHandler
    ResponseEntity<String> late(AsyncRequestTimeoutException timeout, HttpServletRequest request) {
        return failed(HttpStatus.SERVICE_UNAVAILABLE, "not done within the time for asynchronous requests", timeout, request);
    }

    private static ResponseEntity<String> failed(HttpStatus status, String why, Exception error, HttpServletRequest request) {
        ServerHttpObservationFilter.findObservationContext(request).ifPresent(seen -> seen.setError(error));
        return ResponseEntity.status(status).body(why + "\n");
    }

    private List<String> sort() {
        return store.all().stream().sorted(ORDER).toList();
    }

    private static int digitSum(String text) {
        return text.chars().filter(Character::isDigit).map(Character::getNumericValue).sum();
    }
}
