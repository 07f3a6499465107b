package ketch;

import java.io.IOException;

/** The test that has started a program: it reads lines, and closes the program's input when the program is to stop. */
final class Test {
    private static volatile boolean ended;

    private Test() {
    }

    /** To be called first: listens for the end of the input. */
    static void listen() {
        Thread input = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (IOException e) {
                System.err.println(e);
            }
            ended = true;
        });
        input.setDaemon(true);
        input.start();
    }

    static boolean hasEnded() {
        return ended;
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
