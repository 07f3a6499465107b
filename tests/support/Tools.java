import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools in one JVM, for starting one for each would take most of a test's time. A line of stdin is
 * a main class, what it finds on its stdin in Base64, and its arguments, separated by tabs; the answer is a line: exit
 * code and what was printed, in Base64.
 */
public class Tools {
    static final class Ended extends RuntimeException {
    }

    // Of the first exit: some tools catch whatever is thrown, print it and exit again.
    private static Integer exitCode;
    private static byte[] untilExit;
    private static ByteArrayOutputStream printed;

    private static void end(int code) {
        if (exitCode == null) {
            exitCode = code;
            untilExit = printed.toByteArray();
        }
        throw new Ended();
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            printed = new ByteArrayOutputStream();
            exitCode = null;
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(words[1])));
            int code = run(words[0], Arrays.copyOfRange(words, 2, words.length));
            byte[] said = exitCode == null ? printed.toByteArray() : untilExit;
            answers.println((exitCode == null ? code : exitCode) + " " + Base64.getEncoder().encodeToString(said));
            answers.flush();
        }
    }

    private static int run(String tool, String[] arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            error.getCause().printStackTrace();
            return 1;
        }
    }
}
