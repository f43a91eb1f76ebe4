import org.apache.kafka.common.utils.Exit;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Runs Kafka's command-line tools one after the other, so that tests of many calls start one JVM.
 *
 * A call comes on standard input: int32 count, then each word as int32 length and UTF-8 bytes. The first word is the
 * standard input of the tool, the second its class, and the others are its arguments. The answer leaves on standard
 * output: int32 exit code, then what the tool wrote to standard output and to standard error, each as int32 length and
 * bytes. All numbers are big-endian.
 */
public final class ToolServer {
    private static final int WORDS_MAX = 1_000;
    // After its exit code is known, a tool gets this long to close its clients.
    private static final long UNWIND_MS = 5_000;

    // Libraries keep the streams that they found first, so these two stay and the buffers behind them change.
    private static final Capture OUTPUT = new Capture();
    private static final Capture ERRORS = new Capture();
    private static volatile Call running;

    public static void main(String[] unused) throws IOException, InterruptedException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        System.setOut(new PrintStream(OUTPUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> running.exit(code));
        Exit.setHaltProcedure((code, message) -> running.exit(code));
        Exit.setShutdownHookAdder((name, hook) -> running.hooks.add(hook));
        while (true) {
            int count;
            try {
                count = in.readInt();
            } catch (EOFException end) {
                // Threads of tools may still run.
                Runtime.getRuntime().halt(0);
                return;
            }
            if (count < 2 || count > WORDS_MAX)
                throw new IOException(count + " words");
            byte[][] words = new byte[count][];
            for (int index = 0; index < count; index++)
                words[index] = in.readNBytes(in.readInt());
            System.setIn(new ByteArrayInputStream(words[0]));
            running = new Call(Arrays.stream(words).skip(1).map(word -> new String(word, StandardCharsets.UTF_8)).toList());
            Answer answer = running.answer();
            out.writeInt(answer.code);
            for (byte[] written : new byte[][] {answer.output, answer.errors}) {
                out.writeInt(written.length);
                out.write(written);
            }
            out.flush();
        }
    }

    private record Answer(int code, byte[] output, byte[] errors) {
    }

    /** One run of a tool, in a thread of its own. It ends like a JVM: with `main` or with the first call of exit. */
    private static final class Call {
        final List<Runnable> hooks = new ArrayList<>();
        private final CompletableFuture<Answer> ending = new CompletableFuture<>();
        private final Thread thread;

        Call(List<String> words) {
            thread = new Thread(() -> run(words.get(0), words.subList(1, words.size()).toArray(new String[0])));
            thread.setDaemon(true);
        }

        Answer answer() throws InterruptedException {
            OUTPUT.taken();
            ERRORS.taken();
            thread.start();
            Answer answer = ending.join();
            thread.join(UNWIND_MS);
            return answer;
        }

        private void run(String tool, String[] arguments) {
            try {
                Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
                end(0);
            } catch (ReflectiveOperationException thrown) {
                Throwable cause = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
                if (!(cause instanceof Exited)) {
                    cause.printStackTrace();
                    end(1);
                }
            }
        }

        /** Ends the call where a tool would end its JVM; what is thrown closes the clients on the way out. */
        void exit(int code) {
            end(code);
            throw new Exited();
        }

        /** Only the first end counts: what a tool writes while it closes its clients is not part of the answer. */
        private synchronized void end(int code) {
            if (ending.isDone())
                return;
            hooks.forEach(Runnable::run);
            ending.complete(new Answer(code, OUTPUT.taken(), ERRORS.taken()));
        }
    }

    /** Unwinds the stack of a tool that called exit. */
    private static final class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** Collects bytes until they are taken. */
    private static final class Capture extends OutputStream {
        private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int value) {
            buffer.write(value);
        }

        @Override
        public synchronized void write(byte[] values, int start, int count) {
            buffer.write(values, start, count);
        }

        synchronized byte[] taken() {
            byte[] bytes = buffer.toByteArray();
            buffer.reset();
            return bytes;
        }
    }
}
