import org.apache.kafka.common.utils.Exit;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

/**
 * Runs Kafka's command-line tools one after the other, so that a test of many calls pays for one JVM.
 *
 * A call comes on standard input: int32 count, then each argument as int32 length and UTF-8 bytes; the first is the
 * class of the tool. The answer leaves on standard output: int32 exit code, then what the tool wrote to standard output
 * and to standard error, each as int32 length and bytes. All numbers are big-endian.
 */
public final class ToolServer {
    private static final int ARGUMENTS_MAX = 1_000;

    private static volatile CompletableFuture<Integer> running;

    public static void main(String[] unused) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        PrintStream error = System.err;
        Exit.setExitProcedure(ToolServer::end);
        Exit.setHaltProcedure(ToolServer::end);
        while (true) {
            int count;
            try {
                count = in.readInt();
            } catch (EOFException end) {
                return;
            }
            if (count < 1 || count > ARGUMENTS_MAX)
                throw new IOException(count + " arguments");
            String[] arguments = new String[count];
            for (int index = 0; index < count; index++)
                arguments[index] = new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            int code = run(arguments);
            System.out.flush();
            System.err.flush();
            System.setErr(error);
            out.writeInt(code);
            for (ByteArrayOutputStream written : new ByteArrayOutputStream[] {said, complained}) {
                out.writeInt(written.size());
                written.writeTo(out);
            }
            out.flush();
        }
    }

    /** Each call has a thread, because a tool that ends its JVM must come to rest wherever it stands. */
    private static int run(String[] arguments) {
        CompletableFuture<Integer> ending = new CompletableFuture<>();
        running = ending;
        Thread thread = new Thread(() -> {
            ending.complete(called(arguments[0], Arrays.copyOfRange(arguments, 1, arguments.length)));
        });
        thread.setDaemon(true);
        thread.start();
        return ending.join();
    }

    private static int called(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (ReflectiveOperationException thrown) {
            Throwable cause = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            cause.printStackTrace();
            return 1;
        }
    }

    /** What a tool calls instead of System.exit; like that, it never returns. */
    private static void end(int code, String message) {
        running.complete(code);
        while (true)
            LockSupport.park();
    }
}
