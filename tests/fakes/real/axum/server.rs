//! A server on axum with one planted limit: server PORT PLANT LIMIT LOOPS. LOOPS: threads that run tasks; LIMIT: of the
//! semaphore, or threads for calls that block.
use axum::{routing::get, Router};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::{runtime::Builder, sync::Semaphore, task::spawn_blocking};

const MS: Duration = Duration::from_millis(1);

struct Plant {
    name: String,
    slots: Semaphore,
    lock: Mutex<()>,
}

fn hold(lock: &Mutex<()>) {
    let _held = lock.lock().unwrap();
    std::thread::sleep(MS);
}

async fn work(plant: Arc<Plant>) {
    match plant.name.as_str() {
        "sleep" => tokio::time::sleep(20 * MS).await,
        "cpu" => {
            let until = Instant::now() + MS / 2;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        "blocked" => std::thread::sleep(5 * MS),
        "semaphore" => {
            let _slot = plant.slots.acquire().await.unwrap();
            tokio::time::sleep(20 * MS).await;
        }
        "lock" => hold(&plant.lock),
        "pool" => spawn_blocking(|| std::thread::sleep(20 * MS)).await.unwrap(),
        "pool-lock" => spawn_blocking(move || hold(&plant.lock)).await.unwrap(),
        other => panic!("no plant {other}"),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |at: usize| words[at].parse::<usize>().unwrap();
    let (limit, loops) = (number(3), number(4));
    let plant = Arc::new(Plant { name: words[2].clone(), slots: Semaphore::new(limit), lock: Mutex::new(()) });
    let runtime =
        Builder::new_multi_thread().worker_threads(loops).max_blocking_threads(limit).enable_all().build().unwrap();
    runtime.block_on(async {
        let app = Router::new().route(
            "/",
            get(move || {
                let plant = plant.clone();
                async move {
                    work(plant).await;
                    "ok\n"
                }
            }),
        );
        let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{}", words[1])).await.unwrap();
        axum::serve(listener, app).await.unwrap();
    });
}
