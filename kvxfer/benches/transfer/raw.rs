use std::sync::mpsc;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use super::trial::{ARENA, Arena, Plan, Stopwatch, Took, stay_on};

/// One connection, bytes and nothing else; one byte back when all have arrived.
pub(crate) struct Raw {
    runtime: Runtime,
    stream: TcpStream,
    /// Where the next transfer's bytes go, and how many.
    next: mpsc::Sender<(usize, usize)>,
    sent: usize,
}

impl Raw {
    pub(crate) fn new() -> Raw {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (told, listening) = mpsc::channel();
        let (next, transfers) = mpsc::channel();
        thread::spawn(move || {
            stay_on(1);
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(receive(&told, &transfers));
        });
        let at = listening.recv().unwrap();
        let stream = runtime.block_on(TcpStream::connect(at)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { runtime, stream, next, sent: 0 }
    }

    pub(crate) fn run(&mut self, arena: &Arena, plan: Plan) -> Took {
        let mut took = Took::default();
        for _ in 0..plan.count {
            let pieces = arena.pieces(plan, self.sent);
            self.next.send((self.sent, plan.bytes)).unwrap();
            self.sent += 1;
            let watch = Stopwatch::start();
            self.runtime.block_on(async {
                // the length first, as any protocol would have to say it
                self.stream.write_u64_le(plan.bytes as u64).await.unwrap();
                for piece in pieces {
                    self.stream.write_all(&piece).await.unwrap();
                }
                self.stream.read_u8().await.unwrap();
            });
            took.stop(&watch, plan.bytes);
        }
        took
    }
}

async fn receive(told: &mpsc::Sender<std::net::SocketAddr>, transfers: &mpsc::Receiver<(usize, usize)>) {
    let mut target = vec![1; ARENA];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    told.send(listener.local_addr().unwrap()).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.set_nodelay(true).unwrap();
    while let Ok(bytes) = stream.read_u64_le().await {
        let (number, planned) = transfers.recv().unwrap();
        assert_eq!(bytes, planned as u64);
        let start = number * planned % (ARENA - planned + 1);
        stream.read_exact(&mut target[start..start + planned]).await.unwrap();
        stream.write_u8(1).await.unwrap();
    }
}
