package example;

import java.util.concurrent.Semaphore;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PutMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;

/** A sample to try powerband on: /work waits 20 ms, as for a database that serves so many at once as its limit says. */
@SpringBootApplication
@RestController
public class BootApp {
    private volatile Semaphore limit = new Semaphore(64);

    public static void main(String[] arguments) {
        SpringApplication.run(BootApp.class, arguments);
    }

    @GetMapping("/work")
    String work() throws InterruptedException {
        Semaphore own = limit;
        own.acquire();
        try {
            Thread.sleep(20);
        } finally {
            own.release();
        }
        return "done";
    }

    /** A live knob: how many requests may be in the database at once, from now on. */
    @PutMapping("/limit")
    int limit(@RequestParam int size) {
        limit = new Semaphore(size);
        return size;
    }
}
