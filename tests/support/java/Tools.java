// Runs Apache's tools one after the other in one JVM, because each start of a JVM costs a second.
//
// java -cp JARS Tools.java
//
// Reads requests, one line of JSON each: {"main": class, "args": [...], "text": standard input}.
// Answers each with one line: {"code": exit code, "out": standard output, "err": standard error}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.utils.internals.Exit;

public final class Tools {
    /** Unwinds a tool that asked for the end of its process. */
    private static final class Ended extends Error {
        final int code;

        Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    /** Tools keep the streams that they found first, so what is behind these changes. */
    private static final class Printed extends OutputStream {
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private boolean over;

        @Override
        public synchronized void write(int b) {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] b, int offset, int length) {
            if (!over) {
                bytes.write(b, offset, length);
            }
        }

        /** A process that has ended prints nothing. */
        synchronized void end() {
            over = true;
        }

        synchronized String take() {
            String text = bytes.toString(StandardCharsets.UTF_8);
            bytes.reset();
            over = false;
            return text;
        }
    }

    private static final Printed OUT = new Printed();
    private static final Printed ERR = new Printed();
    private static volatile Integer asked;

    public static void main(String[] arguments) throws IOException {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(Tools::end);
        Exit.setHaltProcedure(Tools::end);
        Exit.setShutdownHookAdder((name, hook) -> { });
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            int code = run(json.readTree(line));
            System.out.flush();
            System.err.flush();
            answers.println(json.writeValueAsString(
                    Map.of("code", code, "out", OUT.take(), "err", ERR.take())));
            answers.flush();
        }
    }

    private static void end(int code, String message) {
        // A tool may catch everything, and then say more and ask again with another code.
        if (asked == null) {
            asked = code;
            System.out.flush();
            System.err.flush();
            OUT.end();
            ERR.end();
        }
        throw new Ended(code);
    }

    private static int run(JsonNode request) {
        asked = null;
        String[] arguments = StreamSupport.stream(request.get("args").spliterator(), false)
                .map(JsonNode::asText)
                .toArray(String[]::new);
        byte[] text = request.get("text").asText("").getBytes(StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(text));
        String main = request.get("main").asText();
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ClassNotFoundException unknown) {
            System.err.println("Error: Could not find or load main class " + main);
            return 1;
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Ended)) {
                raised.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace();
            return 1;
        }
        return asked == null ? 0 : asked;
    }
}
